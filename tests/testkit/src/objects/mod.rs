//! A server of objects on the loopback that speaks as much of S3 as a client of it needs, and that
//! fails, stalls and lies when it is told to. Nothing is signed or checked.

mod http;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http::{Answer, Request};

/// The longest that a stalled answer waits.
const LONGEST: Duration = Duration::from_secs(60);

/// What the server does in place of what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It answers with this status and does nothing.
    Status(u16),
    /// It answers nothing until the server is dropped.
    Stall,
    /// It does what was asked and breaks the connection in place of an answer.
    Break,
    /// It says that it is done and has not done it.
    Forget,
    /// It keeps all bytes but the last one.
    Shorten,
    /// It announces all bytes of an object, gives half of them, and breaks the connection.
    Cut,
    /// It gives fewer bytes than were asked for, as if there were no more.
    Less,
    /// It says that the object is longer than it is.
    More,
    /// It changes a byte of what it gives.
    Change,
}

/// What a request asks for: `put`, `get`, `head`, `list`, `delete`, and for an object in pieces
/// `begin`, `part`, `complete` and `abort`.
pub type Kind = &'static str;

/// The server. It ends when it is dropped.
#[derive(Debug)]
pub struct ObjectServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    over: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By bucket and name.
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, Upload>,
    begun: usize,
    /// What goes wrong, with what kind of request, and how many times more.
    wrong: Vec<(Kind, Wrong, usize)>,
    /// The piece that stalls, of every upload.
    stalled: Option<usize>,
    asked: Vec<Kind>,
}

#[derive(Debug, Default)]
struct Upload {
    object: String,
    parts: BTreeMap<usize, Vec<u8>>,
}

impl ObjectServer {
    /// Starts it.
    ///
    /// # Panics
    /// When there is no port for it.
    #[must_use]
    pub fn start() -> ObjectServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|why| panic!("{why}"));
        let address = listener.local_addr().unwrap_or_else(|why| panic!("{why}"));
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let listener = thread::spawn(move || own.listen(&listener));
        ObjectServer { address, shared, listener: Some(listener) }
    }

    /// The settings of a client for it, as `object_store` has them.
    #[must_use]
    pub fn client(&self) -> Vec<(String, String)> {
        let settings = [
            ("aws_endpoint", format!("http://{}", self.address)),
            ("aws_allow_http", "true".into()),
            ("aws_region", "us-east-1".into()),
            ("aws_access_key_id", "key".into()),
            ("aws_secret_access_key", "secret".into()),
        ];
        settings.map(|(key, value)| (key.to_owned(), value)).into()
    }

    /// Lets the next `times` requests of a kind go wrong.
    pub fn wrong(&self, kind: Kind, wrong: Wrong, times: usize) {
        self.shared.state().wrong.push((kind, wrong, times));
    }

    /// Lets the piece of this number stall, counted from 1, whenever it is sent.
    pub fn stall_piece(&self, number: usize) {
        self.shared.state().stalled = Some(number);
    }

    /// Lets nothing go wrong any more; what stalls goes on stalling.
    pub fn right(&self) {
        let mut state = self.shared.state();
        state.wrong.clear();
        state.stalled = None;
    }

    /// The objects, by bucket and name.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.shared.state().objects.clone()
    }

    /// Changes the objects, as somebody else might.
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) {
        change(&mut self.shared.state().objects);
    }

    /// How many uploads in pieces are neither complete nor given up.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.shared.state().uploads.len()
    }

    /// Forgets all such uploads.
    pub fn forget_uploads(&self) {
        self.shared.state().uploads.clear();
    }

    /// How many requests of a kind were made.
    #[must_use]
    pub fn asked(&self, kind: Kind) -> usize {
        self.shared.state().asked.iter().filter(|asked| **asked == kind).count()
    }

    /// Waits until so many requests of a kind were made; whether they were.
    #[must_use]
    pub fn wait_for(&self, kind: Kind, times: usize) -> bool {
        let few =
            |state: &mut State| state.asked.iter().filter(|asked| **asked == kind).count() < times;
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, LONGEST, few);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming().map_while(Result::ok) {
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            let own = Arc::clone(self);
            // Ends with its connection, or when the server does.
            thread::spawn(move || own.serve(stream));
        }
    }

    /// Answers the requests of one connection; it ends when that breaks.
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(LONGEST));
        let mut stream = io::BufReader::new(stream);
        while !self.over.load(Ordering::Relaxed) {
            let Ok(request) = Request::read(&mut stream) else { break };
            if self.answer(&request).send(stream.get_mut()).is_err() {
                break;
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let kind = request.kind();
        let wrong = {
            let mut state = self.state();
            state.asked.push(kind);
            let stalls = kind == "part" && state.stalled == Some(request.piece());
            if stalls { Some(Wrong::Stall) } else { state.take_wrong(kind) }
        };
        self.changed.notify_all();
        match wrong {
            Some(Wrong::Status(status)) => Answer::status(status),
            Some(Wrong::Stall) => {
                let state = self.state();
                let going = |_: &mut State| !self.over.load(Ordering::Relaxed);
                drop(self.changed.wait_timeout_while(state, LONGEST, going));
                Answer::none()
            }
            Some(Wrong::Break) => {
                self.state().handle(request, None);
                Answer::none()
            }
            Some(Wrong::Forget) => Answer::done(kind),
            other => self.state().handle(request, other),
        }
    }
}

impl State {
    fn take_wrong(&mut self, kind: Kind) -> Option<Wrong> {
        let place = self.wrong.iter().position(|(of, _, times)| *of == kind && *times > 0)?;
        self.wrong[place].2 -= 1;
        Some(self.wrong[place].1)
    }

    fn handle(&mut self, request: &Request, wrong: Option<Wrong>) -> Answer {
        let kind = request.kind();
        let mut body = request.body.clone();
        if wrong == Some(Wrong::Shorten) {
            body.pop();
        }
        match kind {
            "put" => {
                self.objects.insert(request.object.clone(), body);
                Answer::done(kind)
            }
            "head" | "get" => match self.objects.get(&request.object) {
                Some(bytes) => Answer::object(bytes, request, wrong),
                None => Answer::status(404),
            },
            "delete" => {
                self.objects.remove(&request.object);
                Answer::status(204)
            }
            "list" => self.list(request),
            _ => self.handle_pieces(request, body),
        }
    }

    fn handle_pieces(&mut self, request: &Request, body: Vec<u8>) -> Answer {
        let kind = request.kind();
        let id = request.query.get("uploadId").cloned().unwrap_or_default();
        if kind == "begin" {
            self.begun += 1;
            let id = format!("upload-{}", self.begun);
            let upload = Upload { object: request.object.clone(), ..Upload::default() };
            self.uploads.insert(id.clone(), upload);
            return Answer::begun(&id);
        }
        let Some(upload) = self.uploads.get_mut(&id) else { return Answer::status(404) };
        match kind {
            "part" => {
                upload.parts.insert(request.piece(), body);
            }
            "complete" => {
                let whole = upload.parts.values().flatten().copied().collect();
                let object = std::mem::take(&mut upload.object);
                self.objects.insert(object, whole);
                self.uploads.remove(&id);
            }
            _ => {
                self.uploads.remove(&id);
                return Answer::status(204);
            }
        }
        Answer::done(kind)
    }

    fn list(&self, request: &Request) -> Answer {
        let prefix = request.query.get("prefix").map_or("", String::as_str);
        let bucket = format!("{}/", request.object.trim_end_matches('/'));
        let found = self.objects.iter().filter_map(|(object, bytes)| {
            let name = object.strip_prefix(&bucket)?;
            name.starts_with(prefix).then_some((name, bytes.len()))
        });
        Answer::list(found)
    }
}
