//! Objects in an object store. Its client is asynchronous: each call here runs it on the caller's
//! thread until it has an answer, the time is over, or the place is stopped.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::Path as FilePath;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::{FuturesOrdered, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    BackoffConfig, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt,
    ObjectStoreScheme, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use unspool_core::Failure;
use unspool_tiers::TierError;
use url::Url;

use crate::fault::{damaged, stopped};
use crate::place::Place;
use crate::settings::Options;
use crate::source::Whole;

mod fault;
mod journal;
mod upload;

/// The most pieces of an object that are on their way at once.
pub(crate) const IN_FLIGHT: usize = 4;

/// The most objects of a list: a server that gives ever more of them lies.
const MOST_LISTED: usize = 1 << 20;

/// What is needed of the client of a store.
pub(crate) trait Objects: ObjectStore + MultipartStore + PaginatedListStore {}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> Objects for T {}

/// A prefix in a bucket.
pub(crate) struct Store {
    pub(crate) objects: Box<dyn Objects>,
    root: Path,
    /// The place as people write it, without anything secret.
    shown: String,
    pub(crate) options: Options,
    /// Says whether it was stopped.
    stop: watch::Sender<bool>,
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl Store {
    pub(crate) fn open(place: &str, options: &Options) -> Result<Store, TierError> {
        let (url, shown) = parse(place)?;
        let refused = |reason: String, advice| {
            TierError::new(Failure::Permanent, "open", shown.clone(), reason).with_advice(advice)
        };
        let (scheme, root) = ObjectStoreScheme::parse(&url).map_err(|_| {
            let advice = "Use s3://, gs:// or az://, and a prefix of letters and digits.";
            refused("this kind of store is not known, or its prefix is none".into(), advice)
        })?;
        // The client takes what is there; another one of this process may have set it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let objects = build(&scheme, &url, options).ok_or_else(|| {
            refused("this kind of store is not known".into(), "Use s3://, gs:// or az://.")
        })?;
        let objects = objects
            .map_err(|cause| fault::of_settings(shown.clone(), &cause, &secrets(options)))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|cause| {
            refused("its client cannot be started".into(), "Look at the limits of this process.")
                .with_cause(cause)
        })?;
        let stop = watch::Sender::new(false);
        Ok(Store { objects, root, shown, options: options.clone(), stop, runtime: Some(runtime) })
    }

    /// The place of an object in its bucket.
    pub(crate) fn path(&self, name: &str) -> Path {
        name.split('/').filter(|word| !word.is_empty()).fold(self.root.clone(), Path::join)
    }

    /// The answer of a request, within the patience for it.
    pub(crate) fn wait<T>(
        &self,
        operation: &'static str,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, TierError> {
        let Some(runtime) = &self.runtime else {
            return Err(stopped(operation, self.locate(name)));
        };
        let (patience, mut stop) = (self.options.patience, self.stop.subscribe());
        runtime.block_on(async {
            let stopping = pin!(stop.wait_for(|stop| *stop));
            let answer = pin!(tokio::time::timeout(patience, request));
            match select(stopping, answer).await {
                Either::Left(_) => Err(stopped(operation, self.locate(name))),
                Either::Right((Err(_), _)) => {
                    Err(fault::late(operation, self.locate(name), patience.as_secs_f64()))
                }
                Either::Right((Ok(answer), _)) => {
                    answer.map_err(|cause| fault::of_store(operation, self.locate(name), &cause))
                }
            }
        })
    }

    /// The bytes of a range of an object, and the size that the server says it has.
    async fn piece(&self, path: Path, range: Range<u64>) -> object_store::Result<(Vec<u8>, u64)> {
        let len = (range.end - range.start) as usize;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let answer = self.objects.get_opts(&path, options).await?;
        let (size, mut stream) = (answer.meta.size, answer.into_stream());
        let mut bytes = Vec::with_capacity(len);
        while let Some(some) = stream.try_next().await? {
            bytes.extend_from_slice(&some);
            if bytes.len() > len {
                break;
            }
        }
        Ok((bytes, size))
    }

    /// The objects whose places in the bucket begin so, and some more than may be listed where
    /// there are too many.
    async fn listed(&self, begin: &str) -> object_store::Result<Vec<ObjectMeta>> {
        let (mut found, mut options) = (Vec::new(), PaginatedListOptions::default());
        loop {
            let page = self.objects.list_paginated(Some(begin), options).await?;
            found.extend(page.result.objects);
            if page.page_token.is_none() || found.len() > MOST_LISTED {
                return Ok(found);
            }
            options = PaginatedListOptions { page_token: page.page_token, ..Default::default() };
        }
    }
}

impl Place for Store {
    fn locate(&self, name: &str) -> String {
        if name.is_empty() { self.shown.clone() } else { format!("{}/{name}", self.shown) }
    }

    fn put(
        &self,
        name: &str,
        whole: &mut Whole<'_>,
        journal: Option<&FilePath>,
    ) -> Result<(), TierError> {
        upload::put(self, name, whole, journal)
    }

    fn size(&self, name: &str) -> Result<u64, TierError> {
        let path = self.path(name);
        self.wait("get", name, self.objects.head(&path)).map(|about| about.size)
    }

    fn read(
        &self,
        name: &str,
        size: u64,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), TierError>,
    ) -> Result<(), TierError> {
        let step = self.options.piece as u64;
        let mut begins = (range.start..range.end).step_by(self.options.piece);
        let mut flying = FuturesOrdered::new();
        loop {
            while flying.len() < IN_FLIGHT
                && let Some(begin) = begins.next()
            {
                let piece = begin..range.end.min(begin + step);
                let len = piece.end - piece.start;
                let piece = self.piece(self.path(name), piece);
                flying.push_back(async move { piece.await.map(|got| (len, got)) });
            }
            let next = async { flying.next().await.transpose() };
            let Some((len, (bytes, said))) = self.wait("get", name, next)? else { return Ok(()) };
            if bytes.len() as u64 != len || said != size {
                let why = format!(
                    "the server said that it has {size} bytes, then {said}, and gave {} where \
                     {len} were asked for",
                    bytes.len()
                );
                return Err(damaged("get", self.locate(name), &why));
            }
            take(&bytes)?;
        }
    }

    fn list(&self, begin: &str) -> Result<Vec<(String, u64)>, TierError> {
        // Not the folder that holds them: a client cannot list one with an object such as `p//x`.
        let root = self.root.as_ref();
        let whole = if root.is_empty() { begin.to_owned() } else { format!("{root}/{begin}") };
        let found = self.wait("list", begin, self.listed(&whole))?;
        if found.len() > MOST_LISTED {
            let reason = format!("the server lists more than {MOST_LISTED} objects");
            return Err(TierError::new(Failure::Io, "list", self.locate(begin), reason));
        }
        let name = |path: &Path| {
            let words: Vec<_> = path.prefix_match(&self.root)?.collect();
            Some(words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/"))
        };
        Ok(found.iter().filter_map(|one| Some((name(&one.location)?, one.size))).collect())
    }

    fn delete(&self, name: &str) -> Result<(), TierError> {
        let path = self.path(name);
        match self.wait("delete", name, self.objects.delete(&path)) {
            Err(error) if error.kind() == Failure::Missing => Ok(()),
            deleted => deleted,
        }
    }

    fn identity(&self) -> Result<String, TierError> {
        Ok(self.shown.clone())
    }

    fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A look-up of a name that hangs is not waited for.
            runtime.shutdown_background();
        }
    }
}

/// The address of a place, and the text that stands for it.
fn parse(place: &str) -> Result<(Url, String), TierError> {
    let refused = |reason: &str, advice: &str| {
        // The text itself may hold a password.
        TierError::new(Failure::Permanent, "open", "a remote place", reason).with_advice(advice)
    };
    let forms = "Write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or the path \
                 of a directory.";
    let url = Url::parse(place).map_err(|_| refused("it is not an address", forms))?;
    if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        let advice = "Give credentials by the environment (AWS_*, GOOGLE_* or AZURE_*).";
        return Err(refused("its address has more than a bucket and a prefix", advice));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(refused("its address names no bucket", forms));
    }
    let shown = url.as_str().trim_end_matches('/').to_owned();
    Ok((url, shown))
}

/// The values that no text may have in it: those of the environment and of the settings whose
/// names do not say that they are harmless.
fn secrets(options: &Options) -> Vec<String> {
    let words = ["KEY", "SECRET", "TOKEN", "PASSWORD", "SAS", "CREDENTIAL", "ACCOUNT"];
    let of_environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let all = of_environment.chain(options.client.iter().cloned());
    let is_secret = |(name, value): &(String, String)| {
        let name = name.to_ascii_uppercase();
        !value.is_empty() && words.iter().any(|word| name.contains(word))
    };
    all.filter(is_secret).map(|(_, value)| value).collect()
}

/// The client of a store; `None` for a kind that is not known.
fn build(
    scheme: &ObjectStoreScheme,
    url: &Url,
    options: &Options,
) -> Option<object_store::Result<Box<dyn Objects>>> {
    let retry = RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(10), ..Default::default() },
        max_retries: options.retries,
        retry_timeout: options.patience,
    };
    let seconds = |time: Duration| format!("{}ms", time.as_millis().max(1));
    let connect = options.request.min(Duration::from_secs(10));
    let times = [("timeout", seconds(options.request)), ("connect_timeout", seconds(connect))];
    let settings = || {
        let times = times.iter().map(|(key, value)| (*key, value));
        times.chain(options.client.iter().map(|(key, value)| (key.as_str(), value)))
    };
    macro_rules! client {
        ($builder:expr) => {{
            let begun = $builder.with_url(url.as_str()).with_retry(retry);
            let built = settings().try_fold(begun, |builder, (key, value)| {
                Ok(builder.with_config(key.parse()?, value.as_str()))
            });
            built.and_then(|builder| builder.build()).map(|client| Box::new(client) as _)
        }};
    }
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            // One by one, as not every server knows the other way.
            Some(client!(AmazonS3Builder::from_env().with_disable_bulk_delete(true)))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            Some(client!(GoogleCloudStorageBuilder::from_env()))
        }
        ObjectStoreScheme::MicrosoftAzure => Some(client!(MicrosoftAzureBuilder::from_env())),
        _ => None,
    }
}
