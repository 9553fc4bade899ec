//! A remote place on a server that fails, stalls and lies.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use unspool_core::Failure;
use unspool_remote::{Options, Parts, Remote};
use unspool_testkit::{ObjectServer, Pattern, Scratch, Wrong};
use unspool_tiers::TierError;

const PIECE: usize = 1 << 20;
/// The bytes of an object of four pieces.
const LARGE: usize = 3 * PIECE + 77;

/// The place with a request of at most `request`, which decides when one is made again.
fn open_for(server: &ObjectServer, request: Duration, patience: Duration) -> Remote {
    let options = Options { request, patience, retries: 3, piece: PIECE, client: server.client() };
    Remote::open("s3://bucket/some/prefix", &options).expect("no server is asked")
}

/// The place with time enough for every answer: requests are counted.
fn open(server: &ObjectServer) -> Remote {
    open_for(server, Duration::from_secs(30), Duration::from_secs(60))
}

fn large() -> Vec<u8> {
    Pattern(7).bytes(0, LARGE)
}

fn put(remote: &Remote, name: &str, bytes: &[u8], journal: Option<&Path>) -> Result<(), TierError> {
    remote.put(name, &Parts::of(&[bytes]), journal).map(drop)
}

#[test]
fn objects_small_and_large_are_put_got_listed_and_deleted() {
    let server = ObjectServer::start();
    let remote = open(&server);
    put(&remote, "a/small", b"small", None).unwrap();
    put(&remote, "a/empty", b"", None).unwrap();
    put(&remote, "b/large", &large(), None).unwrap();
    assert_eq!(server.asked("part"), 4);
    assert_eq!(remote.get("a/small").unwrap(), b"small");
    assert_eq!(remote.get("a/empty").unwrap(), b"");
    assert!(remote.get("b/large").unwrap() == large());
    let listed = |folder| -> Vec<(String, u64)> {
        remote.list(folder).unwrap().into_iter().map(|one| (one.name, one.bytes)).collect()
    };
    let small = [("a/empty".to_owned(), 0), ("a/small".to_owned(), 5)];
    assert_eq!(listed("a/"), small);
    assert_eq!(listed("").len(), 3);
    remote.delete("a/small").unwrap();
    remote.delete("a/small").unwrap();
    assert_eq!(remote.get("a/small").unwrap_err().kind(), Failure::Missing);
    assert!(server.objects().keys().all(|name| name.starts_with("bucket/some/prefix/")));
}

#[test]
fn errors_that_pass_are_tried_again() {
    let server = ObjectServer::start();
    let remote = open(&server);
    for kind in ["begin", "part", "complete", "head", "get", "put", "list", "delete"] {
        server.wrong(kind, Wrong::Status(503), 2);
    }
    put(&remote, "x", &large(), None).unwrap();
    put(&remote, "y", b"y", None).unwrap();
    assert!(remote.get("x").unwrap() == large());
    assert_eq!(remote.list("").unwrap().len(), 2);
    remote.delete("x").unwrap();
    assert_eq!(server.unfinished(), 0);
}

#[test]
fn connections_that_break_are_made_again() {
    let server = ObjectServer::start();
    let remote = open(&server);
    for kind in ["part", "put", "get"] {
        server.wrong(kind, Wrong::Break, 1);
    }
    put(&remote, "x", &large(), None).unwrap();
    put(&remote, "y", b"y", None).unwrap();
    server.wrong("get", Wrong::Cut, 2);
    assert!(remote.get("x").unwrap() == large());
}

#[test]
fn an_answer_that_was_lost_does_not_make_a_put_fail() {
    let server = ObjectServer::start();
    let remote = open(&server);
    server.wrong("complete", Wrong::Break, 1);
    let scratch = Scratch::new();
    let journal = scratch.path().join("journal");
    // The second try finds no upload, as it is complete.
    let done = put(&remote, "x", &large(), Some(&journal));
    assert!(done.is_ok() || put(&remote, "x", &large(), Some(&journal)).is_ok(), "{done:?}");
    assert!(remote.get("x").unwrap() == large());
}

#[test]
fn a_server_that_goes_on_failing_is_an_error_in_time_that_names_it() {
    let server = ObjectServer::start();
    let remote = open_for(&server, Duration::from_millis(500), Duration::from_secs(3));
    put(&remote, "there", b"there", None).unwrap();
    server.wrong("put", Wrong::Status(500), usize::MAX);
    server.wrong("get", Wrong::Stall, usize::MAX);
    server.wrong("list", Wrong::Break, usize::MAX);
    let began = Instant::now();
    let error = put(&remote, "x", b"x", None).unwrap_err();
    assert_eq!(error.kind(), Failure::Io);
    assert!(error.to_string().contains("s3://bucket/some/prefix/x"), "{error}");
    assert!(error.to_string().contains("answered 500"), "{error}");
    let error = remote.get("there").unwrap_err();
    assert_eq!(error.kind(), Failure::Io, "{error}");
    let error = remote.list("").unwrap_err();
    assert_eq!(error.kind(), Failure::Io, "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(!server.objects().contains_key("bucket/some/prefix/x"));
}

#[test]
fn a_refusal_is_not_tried_again() {
    let server = ObjectServer::start();
    let remote = open(&server);
    server.wrong("put", Wrong::Status(403), usize::MAX);
    let error = put(&remote, "x", b"x", None).unwrap_err();
    assert_eq!((error.kind(), server.asked("put")), (Failure::Permanent, 1));
    assert!(
        error.to_string().contains("AWS_*") && !error.to_string().contains("secret"),
        "{error}"
    );
}

#[test]
fn a_server_that_lies_about_what_it_has_is_found_out() {
    let server = ObjectServer::start();
    let remote = open(&server);
    for (kind, bytes) in [("put", vec![1; 100]), ("complete", large()), ("part", large())] {
        for wrong in [Wrong::Forget, Wrong::Shorten] {
            if (kind, wrong) == ("complete", Wrong::Shorten) {
                continue;
            }
            server.wrong(kind, wrong, 1);
            let error = put(&remote, "x", &bytes, None).unwrap_err();
            assert!(
                [Failure::Corrupt, Failure::Missing].contains(&error.kind()),
                "{kind} {wrong:?} {error}"
            );
            assert!(remote.get("x").is_err(), "{kind} {wrong:?}");
            server.change(|objects| objects.clear());
        }
    }
}

#[test]
fn a_server_that_lies_about_lengths_or_changes_bytes_is_found_out() {
    let server = ObjectServer::start();
    let remote = open(&server);
    put(&remote, "x", &large(), None).unwrap();
    put(&remote, "small", &[1; 100], None).unwrap();
    for name in ["x", "small"] {
        for (kind, wrong) in [
            ("head", Wrong::More),
            ("get", Wrong::More),
            ("get", Wrong::Less),
            ("get", Wrong::Change),
        ] {
            server.wrong(kind, wrong, usize::MAX);
            let error = remote.get(name).unwrap_err();
            assert!([Failure::Corrupt, Failure::Io].contains(&error.kind()), "{wrong:?}: {error}");
            server.right();
        }
    }
    // Only the bytes before the foot are changed: the checksum says so.
    server.change(|objects| {
        objects.get_mut("bucket/some/prefix/x").unwrap()[PIECE] ^= 1;
    });
    let error = remote.get("x").unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
    assert_eq!(error.kind(), Failure::Corrupt);
}

#[test]
fn a_large_upload_goes_on_where_it_was_interrupted() {
    let scratch = Scratch::new();
    let journal = scratch.path().join("upload");
    let server = ObjectServer::start();
    let bytes = Pattern(1).bytes(0, 10 * PIECE);
    server.wrong("complete", Wrong::Status(503), usize::MAX);
    assert!(put(&open(&server), "x", &bytes, Some(&journal)).is_err());
    assert_eq!(server.asked("part"), 11);
    assert!(server.objects().is_empty(), "nothing is there before all of it is");
    server.right();
    // Another process, perhaps.
    let remote = open(&server);
    put(&remote, "x", &bytes, Some(&journal)).unwrap();
    assert_eq!((server.asked("part"), server.asked("begin")), (11, 1));
    assert!(remote.get("x").unwrap() == bytes);
    assert!(!journal.exists());
    // One that was stopped in between: three pieces are there, and four are on their way.
    server.stall_piece(4);
    let remote = open(&server);
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| put(&remote, "y", &bytes, Some(&journal)));
        assert!(server.wait_for("part", 11 + 7));
        remote.stop();
        assert!(upload.join().unwrap().is_err());
    });
    server.right();
    let remote = open(&server);
    put(&remote, "y", &bytes, Some(&journal)).unwrap();
    assert_eq!(server.asked("part"), 11 + 7 + 8);
    assert!(remote.get("y").unwrap() == bytes);
    assert_eq!(server.unfinished(), 0);
}

#[test]
fn what_is_begun_with_other_bytes_is_given_up_or_sent_anew() {
    let scratch = Scratch::new();
    let journal = scratch.path().join("upload");
    let server = ObjectServer::start();
    let remote = open(&server);
    let interrupted = |bytes: &[u8]| {
        server.wrong("complete", Wrong::Status(503), usize::MAX);
        assert!(put(&remote, "x", bytes, Some(&journal)).is_err());
        server.right();
    };
    interrupted(&large());
    // The same length, and one piece differs: it is sent anew, and the last one, with the foot.
    let mut changed = large();
    changed[2 * PIECE] ^= 1;
    put(&remote, "x", &changed, Some(&journal)).unwrap();
    assert_eq!(server.asked("part"), 6);
    assert!(remote.get("x").unwrap() == changed);
    // Another object: what was begun is given up.
    interrupted(&large());
    put(&remote, "y", &large(), Some(&journal)).unwrap();
    assert_eq!((server.asked("abort"), server.unfinished()), (1, 0));
    // The store has forgotten it.
    interrupted(&large());
    server.forget_uploads();
    put(&remote, "x", &large(), Some(&journal)).unwrap();
    assert!(remote.get("x").unwrap() == large());
    // The journal is nonsense.
    fs::write(&journal, "unspool-upload 1\nobject x").unwrap();
    put(&remote, "x", &changed, Some(&journal)).unwrap();
    assert!(remote.get("x").unwrap() == changed);
}

#[test]
fn a_call_that_waits_ends_when_it_is_stopped() {
    let server = ObjectServer::start();
    let mut options = Options {
        patience: Duration::from_secs(600),
        client: server.client(),
        ..Options::default()
    };
    options.request = Duration::from_secs(600);
    let remote = Remote::open("s3://bucket", &options).unwrap();
    server.wrong("put", Wrong::Stall, usize::MAX);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| put(&remote, "x", b"x", None));
        assert!(server.wait_for("put", 1));
        let began = Instant::now();
        remote.stop();
        let error = waits.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("given up"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10));
    });
    assert!(remote.list("").is_err());
}

#[test]
fn settings_that_make_no_sense_are_told_without_secrets() {
    let opened = |place: &str, settings: &[(&str, &str)]| {
        let client = settings.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        let options = Options { client: client.collect(), ..Options::default() };
        assert!(!format!("{options:?}").contains("hidden"), "{options:?}");
        Remote::open(place, &options).expect_err("a refusal").to_string()
    };
    let error = opened("az://container/x", &[("azure_storage_account_key", "hidden")]);
    assert!(error.contains("Account") && error.contains("AZURE_*"), "{error}");
    let account =
        [("azure_storage_account_name", "name"), ("azure_storage_account_key", "hidden!")];
    let error = opened("az://container/x", &account);
    assert!(error.contains("no sensible settings") && !error.contains("hidden"), "{error}");
    let error = opened("gs://bucket/x", &[("google_service_account_key", "{hidden}")]);
    assert!(error.contains("no sensible settings") && !error.contains("hidden"), "{error}");
    let error = opened("s3://bucket/x", &[("aws_no_such_thing", "hidden")]);
    assert!(error.contains("no_such_thing") && !error.contains("hidden"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_told_without_secrets() {
    let mut client = ObjectServer::start().client();
    client.retain(|(key, _)| key != "aws_endpoint");
    client.push(("aws_endpoint".into(), "http://127.0.0.1:9".into()));
    let options = Options {
        request: Duration::from_secs(1),
        patience: Duration::from_secs(2),
        retries: 1,
        client,
        ..Options::default()
    };
    let remote = Remote::open("s3://bucket/x", &options).unwrap();
    let error = remote.list("").unwrap_err().to_string();
    assert!(error.contains("cannot be reached") && error.contains("refused"), "{error}");
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn what_keeps_a_place_from_being_listed_is_named() {
    let server = ObjectServer::start();
    let remote = open(&server);
    put(&remote, "a/x", b"x", None).unwrap();
    server.wrong("list", Wrong::Status(404), 1);
    let text = remote.list("").unwrap_err().to_string();
    assert!(text.contains("the bucket does not exist"), "{text}");
    let odd = "bucket/some/prefix/p//x".to_owned();
    server.change(|objects| assert!(objects.insert(odd, vec![1]).is_none()));
    let error = remote.list("").unwrap_err();
    assert_eq!(error.kind(), Failure::Permanent);
    let text = error.to_string();
    assert!(text.contains("p//x") && text.contains("Remove that object"), "{text}");
    // It blocks no list of others.
    assert_eq!(remote.list("a").unwrap().len(), 1);
    assert_eq!(remote.list("a/").unwrap().len(), 1);
}
