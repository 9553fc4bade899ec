//! A directory as a remote place.

use std::os::unix::fs::PermissionsExt;

use unspool_core::Failure;
use unspool_testkit::{Pattern, Scratch};

use super::*;
use crate::{Options, Parts, Remote, Source};

fn remote(scratch: &Scratch) -> Remote {
    let path = scratch.path().join("remote");
    Remote::open(path.to_str().unwrap(), &Options::default()).unwrap()
}

fn put(remote: &Remote, name: &str, bytes: &[u8]) {
    remote.put(name, &Parts::of(&[bytes]), None).unwrap();
}

#[test]
fn what_was_put_is_got_listed_and_deleted() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    let large = Pattern(1).bytes(0, (9 << 20) + 5);
    put(&remote, "a/b/large", &large);
    put(&remote, "a/small", b"small");
    put(&remote, "c", b"");
    assert!(remote.get("a/b/large").unwrap() == large);
    assert_eq!(remote.get("c").unwrap(), b"");
    let names = |folder| -> Vec<(String, u64)> {
        let listed = remote.list(folder).unwrap().into_iter();
        listed.map(|entry| (entry.name, entry.bytes)).collect()
    };
    let large = ("a/b/large".to_owned(), (9 << 20) + 5);
    assert_eq!(names("a"), [large.clone(), ("a/small".into(), 5)]);
    assert_eq!(names(""), [large, ("a/small".into(), 5), ("c".into(), 0)]);
    assert_eq!(names("nobody"), []);
    remote.delete("a/small").unwrap();
    remote.delete("a/small").unwrap();
    assert_eq!(remote.get("a/small").unwrap_err().kind(), Failure::Missing);
    let mode = fs::metadata(scratch.path().join("remote/c")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_object_that_is_cut_or_changed_is_damaged() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    let path = scratch.path().join("remote/x");
    put(&remote, "x", &[7; 100]);
    let whole = fs::read(&path).unwrap();
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(remote.get("x").unwrap_err().kind(), Failure::Corrupt, "{end}");
    }
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        fs::write(&path, &changed).unwrap();
        assert_eq!(remote.get("x").unwrap_err().kind(), Failure::Corrupt, "{place}");
    }
    put(&remote, "x", b"anew");
    assert_eq!(remote.get("x").unwrap(), b"anew");
}

/// A source that ends early.
struct Short;

impl crate::Source for Short {
    fn bytes(&self) -> u64 {
        100
    }
    fn read(&self, _at: u64, _into: &mut [u8]) -> Result<(), TierError> {
        Err(TierError::new(Failure::Io, "get", "the source", "it ended"))
    }
}

#[test]
fn a_put_that_fails_leaves_what_was_there() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    put(&remote, "a/x", b"before");
    assert!(remote.put("a/x", &Short, None).is_err());
    assert_eq!(remote.get("a/x").unwrap(), b"before");
    let left = fs::read_dir(scratch.path().join("remote/a")).unwrap().count();
    assert_eq!(left, 1, "nothing of it is left");
    remote.stop();
    let stopped = remote.put("a/y", &Parts::of(&[b"later"]), None).unwrap_err();
    assert!(stopped.to_string().contains("given up"), "{stopped}");
    assert!(remote.get("a/x").is_err());
}

#[test]
fn what_a_killed_process_left_is_not_listed_and_goes_in_the_end() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    put(&remote, "a/x", b"x");
    let folder = scratch.path().join("remote/a");
    let (old, new) = (folder.join(".y.1-2-3.part"), folder.join(".y.4-5-6.part"));
    fs::write(&old, [0; 100]).unwrap();
    fs::write(&new, [0; 100]).unwrap();
    let long_ago = SystemTime::now() - 2 * ABANDONED;
    File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(remote.list("").unwrap().len(), 1);
    put(&remote, "a/y", b"y");
    assert!(!old.exists() && new.exists());
}

#[test]
fn links_are_not_objects() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    put(&remote, "x", b"x");
    let folder = scratch.path().join("remote");
    std::os::unix::fs::symlink(folder.join("x"), folder.join("y")).unwrap();
    assert!(remote.get("y").is_err());
    assert_eq!(remote.list("").unwrap().len(), 1);
}

#[test]
fn a_folder_that_is_a_link_is_refused_and_nothing_behind_it_is_touched() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    let elsewhere = scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("x"), "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, scratch.path().join("remote/rank-0")).unwrap();
    let refused = [
        remote.put("rank-0/x", &Parts::of(&[b"x"]), None).unwrap_err(),
        remote.put("rank-0/below/x", &Parts::of(&[b"x"]), None).unwrap_err(),
        remote.get("rank-0/x").unwrap_err(),
        remote.delete("rank-0/x").unwrap_err(),
        remote.list("rank-0/").unwrap_err(),
        remote.list("rank-0/below/").unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), Failure::Permanent, "{error}");
        let text = error.to_string();
        assert!(text.contains("remote/rank-0") && text.contains("it is a link"), "{text}");
    }
    assert_eq!(fs::read(elsewhere.join("x")).unwrap(), b"mine");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    // The place itself may be one: it was named by who opens it.
    std::os::unix::fs::symlink(scratch.path().join("remote"), scratch.path().join("here")).unwrap();
    let path = scratch.path().join("here");
    let linked = Remote::open(path.to_str().unwrap(), &Options::default()).unwrap();
    put(&linked, "rank-1/x", b"x");
    assert_eq!(remote.get("rank-1/x").unwrap(), b"x");
}

#[test]
fn only_the_last_part_of_a_path_is_made() {
    let scratch = Scratch::new();
    let path = scratch.path().join("a/b");
    let error = Remote::open(path.to_str().unwrap(), &Options::default()).unwrap_err();
    assert_eq!(error.kind(), Failure::Missing);
    assert!(scratch.names().is_empty());
}

#[test]
fn odd_names_and_odd_places_are_refused() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    for name in ["../x", "", "a//b", "/etc/x"] {
        assert!(remote.put(name, &Parts::of(&[b"x"]), None).is_err(), "{name}");
        assert!(remote.get(name).is_err() && remote.delete(name).is_err(), "{name}");
    }
    for place in
        ["http://x/y", "s3://", "ftp://a/b", "s3://key:secret@bucket/x", "s3://b/x?sig=secret"]
    {
        let error = Remote::open(place, &Options::default()).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_place_that_was_removed_is_made_again_by_a_put() {
    let scratch = Scratch::new();
    let remote = remote(&scratch);
    fs::remove_dir_all(scratch.path().join("remote")).unwrap();
    assert!(remote.list("").unwrap().is_empty());
    remote.delete("a/x").unwrap();
    assert_eq!(remote.get("a/x").unwrap_err().kind(), Failure::Missing);
    put(&remote, "a/x", b"x");
    assert_eq!(remote.get("a/x").unwrap(), b"x");
}

#[test]
fn a_folder_that_becomes_a_link_while_an_object_is_written_leads_nothing_elsewhere() {
    /// A source that puts a link in place of the folder before it gives its bytes.
    #[derive(Debug)]
    struct Swaps(PathBuf, PathBuf);

    impl Source for Swaps {
        fn bytes(&self) -> u64 {
            4
        }

        fn read(&self, _: u64, into: &mut [u8]) -> Result<(), TierError> {
            fs::rename(&self.0, self.0.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(&self.1, &self.0).unwrap();
            into.fill(7);
            Ok(())
        }
    }

    let scratch = Scratch::new();
    let remote = remote(&scratch);
    put(&remote, "a/x", b"x");
    let elsewhere = scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let source = Swaps(scratch.path().join("remote/a"), elsewhere.clone());
    let refused = remote.put("a/y", &source, None).unwrap_err().to_string();
    assert!(refused.contains("it is a link"), "{refused}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}
