//! The conformance suite for a tier in an object store: on the testkit's own server, and on a real
//! one where there is one.

mod tier;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tier::opened;
use unspool_remote::{Options, Parts, Remote, Source};
use unspool_testkit::conformance::{Fixture, run_all};
use unspool_testkit::{ObjectServer, Pattern, Scratch, conformance};
use unspool_tiers::TierError;

/// Pieces of 5 MiB are the smallest that stores take.
fn on_server(capacity: u64) -> Fixture {
    let server = ObjectServer::start();
    let options = Options { client: server.client(), piece: 5 << 20, ..Options::default() };
    Fixture::with(opened("s3://bucket/prefix", &options, capacity), server)
}

conformance!(server, on_server);

/// A versitygw on a port of its own, with its buckets in a scratch directory.
struct Gateway {
    process: Child,
    port: u16,
    _scratch: Scratch,
}

impl Gateway {
    fn start() -> Gateway {
        let program = std::env::var_os("UNSPOOL_TEST_VERSITYGW").map(PathBuf::from);
        let program = program.unwrap_or_else(|| "versitygw".into());
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("bucket")).expect("a bucket");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("its address").port();
        drop(free);
        let process = Command::new(&program)
            .env("ROOT_ACCESS_KEY", "user")
            .env("ROOT_SECRET_KEY", "secretsecret")
            .args(["--port", &format!("127.0.0.1:{port}"), "--quiet", "posix"])
            .arg(scratch.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()));
        let gateway = Gateway { process, port, _scratch: scratch };
        gateway.await_answer();
        gateway
    }

    fn await_answer(&self) {
        let limit = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < limit, "it does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self) -> Vec<(String, String)> {
        let settings = [
            ("aws_endpoint", format!("http://127.0.0.1:{}", self.port)),
            ("aws_allow_http", "true".into()),
            ("aws_region", "us-east-1".into()),
            ("aws_access_key_id", "user".into()),
            ("aws_secret_access_key", "secretsecret".into()),
        ];
        settings.map(|(key, value)| (key.to_owned(), value)).into()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn on_versitygw(capacity: u64) -> Fixture {
    let gateway = Gateway::start();
    let options = Options { client: gateway.client(), piece: 5 << 20, ..Options::default() };
    Fixture::with(opened("s3://bucket/prefix", &options, capacity), gateway)
}

#[test]
#[ignore = "it needs versitygw: make test-peers runs it"]
fn versitygw() {
    run_all(on_versitygw);
}

#[test]
#[ignore = "it needs versitygw: make test-peers runs it"]
fn an_upload_to_versitygw_goes_on_where_it_was_interrupted() {
    let (gateway, scratch) = (Gateway::start(), Scratch::new());
    let journal = scratch.path().join("upload");
    let options = Options { client: gateway.client(), piece: 5 << 20, ..Options::default() };
    let bytes = Pattern(1).bytes(0, 40 << 20);
    let parts = [&bytes[..]];
    let open = || Remote::open("s3://bucket/x", &options).unwrap_or_else(|why| panic!("{why}"));
    let source = Stopping { parts: Parts::of(&parts), remote: open(), at: 30 << 20 };
    let stopped = source.remote.put("large", &source, Some(&journal));
    assert!(stopped.is_err() && journal.exists());
    let sent = fs::read_to_string(&journal).unwrap_or_default();
    assert!(sent.contains("\nsent 0 "), "{sent}");
    let remote = open();
    assert!(remote.list("").unwrap_or_default().is_empty(), "nothing is there before all is");
    remote.put("large", &Parts::of(&parts), Some(&journal)).unwrap_or_else(|why| panic!("{why}"));
    assert!(remote.get("large").unwrap_or_default() == bytes);
    assert!(!journal.exists());
}

/// Bytes whose reader stops the place that they go to.
struct Stopping<'a> {
    parts: Parts<'a>,
    remote: Remote,
    at: u64,
}

impl Source for Stopping<'_> {
    fn bytes(&self) -> u64 {
        self.parts.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), TierError> {
        if at >= self.at {
            self.remote.stop();
        }
        self.parts.read(at, into)
    }
}
