//! Checkpointers with copies in an object store, whose server goes wrong.

use unspool_testkit::{ObjectServer, Wrong};

use super::*;

/// Settings with a prefix on a server that has time enough for every answer.
fn with_server(scratch: &Scratch, server: &ObjectServer) -> Settings {
    server_within(scratch, server, Duration::from_secs(30))
}

/// Settings with a prefix on a server of which a request takes this long at most.
fn server_within(scratch: &Scratch, server: &ObjectServer, request: Duration) -> Settings {
    let options = Options {
        request,
        patience: 2 * request,
        retries: 1,
        piece: 1 << 20,
        client: server.client(),
    };
    let remote = RemoteSettings { options, ..RemoteSettings::new("s3://bucket/run") };
    Settings { remote: Some(remote), ..settings(scratch.path(), 2) }
}

#[test]
fn a_second_run_under_one_prefix_is_refused_until_the_first_one_is_gone() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    one_run_at_a_time(&scratch, &with_server(&scratch, &server));
    assert!(server.objects().keys().all(|name| !name.ends_with("writer")));
}

#[test]
fn a_server_that_stalls_holds_up_no_save_and_the_end_says_what_did_not_get_there() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    let hasty = || server_within(&scratch, &server, Duration::from_millis(400));
    let c = opened(hasty(), &Alone);
    save_and_copy(&c, 1);
    server.wrong("put", Wrong::Stall, usize::MAX);
    let began = Instant::now();
    (2..=6).for_each(|step| save(&c, &Alone, step));
    assert!(began.elapsed() < Duration::from_secs(5));
    c.committer.settle(&Wait::default()).unwrap();
    assert!(c.copies().unwrap().skipped >= 3, "{:?}", c.copies());
    let told = c.close(Some(&Alone), &Wait::default()).unwrap_err();
    assert!(told.message().contains("did not reach s3://bucket/run"), "{told}");
    assert!(c.is_closed());
    c.spool().close().unwrap();
    let here = listed(&scratch);
    assert_eq!(here.last(), Some(&6));
    drop(c);
    // The next opening gets it there.
    server.right();
    let c = opened(with_server(&scratch, &server), &Alone);
    settle(&c).unwrap();
    assert_eq!(c.copies().unwrap().steps, [1, 6]);
    close(&c, &Alone);
}

#[test]
fn what_a_server_has_not_kept_does_not_count_there() {
    for (kind, wrong) in [
        ("put", Wrong::Forget),
        ("put", Wrong::Shorten),
        ("put", Wrong::Status(500)),
        ("head", Wrong::More),
        ("get", Wrong::Change),
    ] {
        let (scratch, server) = (Scratch::new(), ObjectServer::start());
        let c = opened(with_server(&scratch, &server), &Alone);
        save_and_copy(&c, 1);
        server.wrong(kind, wrong, usize::MAX);
        save_and_copy(&c, 2);
        let told = c.take_copy_failure().expect("a failure");
        assert!(told.message().contains("Step 2 counts in"), "{told}");
        assert_eq!(c.copies().unwrap().steps, [1], "{kind} {wrong:?}");
        server.right();
        c.give_up();
        c.spool().close().unwrap();
        drop(c);
        lose_disk(&scratch);
        let c = opened(with_server(&scratch, &server), &Alone);
        assert_eq!(restore(&c, &Alone), Some(1), "{kind} {wrong:?}");
    }
}

#[test]
fn who_is_interrupted_does_not_wait_for_a_server_that_does_not_answer() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    let c = opened(with_server(&scratch, &server), &Alone);
    save_and_copy(&c, 1);
    save_and_copy(&c, 2);
    close(&c, &Alone);
    let stopped = Wait { interrupted: &|| true, ..Wait::default() };
    for kind in ["list", "get", "head"] {
        server.wrong(kind, Wrong::Stall, 1);
        let settings = with_server(&scratch, &server);
        let opened = open_until(settings, &Alone, None, &stopped);
        assert_eq!(opened.unwrap_err().kind(), ErrorKind::Interrupted, "{kind}");
        server.right();
    }
    lose_disk(&scratch);
    let c = opened(with_server(&scratch, &server), &Alone);
    assert_eq!(c.latest(&Alone, &Wait::default()).unwrap(), Some(2));
    server.wrong("get", Wrong::Stall, 1);
    assert_eq!(c.ready(2, &stopped).unwrap_err().kind(), ErrorKind::Interrupted);
    server.right();
    assert_eq!(restore(&c, &Alone), Some(2));
    close(&c, &Alone);
}

#[test]
fn a_large_part_goes_on_where_its_upload_was_interrupted() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    let c = opened(with_server(&scratch, &server), &Alone);
    server.wrong("complete", Wrong::Status(500), usize::MAX);
    save_of(&c, &Alone, 1, 5 << 20).unwrap();
    c.close(Some(&Alone), &Wait::default()).unwrap_err();
    c.spool().close().unwrap();
    drop(c);
    let sent = server.asked("part");
    assert_eq!((sent, server.objects().len()), (6, 0));
    server.right();
    let c = opened(with_server(&scratch, &server), &Alone);
    settle(&c).unwrap();
    assert_eq!((server.asked("part"), server.unfinished()), (sent, 0), "none is sent again");
    close(&c, &Alone);
    lose_disk(&scratch);
    let c = opened(with_server(&scratch, &server), &Alone);
    assert_eq!(restore(&c, &Alone), Some(1));
}

#[test]
fn a_remote_place_that_cannot_be_had_or_is_of_other_ranks_is_refused() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    server.wrong("list", Wrong::Status(403), usize::MAX);
    let told = open_as(with_server(&scratch, &server), &Alone, None).unwrap_err();
    assert!(told.message().contains("newest checkpoint may be in the remote place"), "{told}");
    server.right();
    threads(2, &|seat| {
        let c = opened(with_server(&scratch, &server), seat);
        save(&c, seat, 1);
        close(&c, seat);
    });
    lose_disk(&scratch);
    let told = open_as(with_server(&scratch, &server), &Alone, None).unwrap_err();
    assert!(told.message().contains("checkpoints of 2 ranks, and this run has 1"), "{told}");
}

#[test]
fn a_copy_that_fails_while_it_is_fetched_leaves_an_older_step() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    let c = opened(with_server(&scratch, &server), &Alone);
    (1..=2).for_each(|step| save_and_copy(&c, step));
    close(&c, &Alone);
    lose_disk(&scratch);
    let c = opened(with_server(&scratch, &server), &Alone);
    server.change(|objects| {
        let frame = objects.get_mut("bucket/run/rank-0000-of-0001/step-2.frame").unwrap();
        frame.truncate(10_000);
    });
    assert_eq!(restore(&c, &Alone), Some(1));
}

#[test]
fn no_request_takes_longer_than_a_wait_may() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    server.wrong("list", Wrong::Stall, usize::MAX);
    let options = Options { client: server.client(), ..Options::default() };
    let remote = RemoteSettings { options, ..RemoteSettings::new("s3://bucket/run") };
    let settings = Settings {
        remote: Some(remote),
        timeout: Duration::from_secs(1),
        ..settings(scratch.path(), 2)
    };
    let (began, usual) = (Instant::now(), Options::default());
    let told = open_as(settings, &Alone, None).unwrap_err();
    assert!(told.message().contains("which cannot be had"), "{told}");
    assert!(began.elapsed() < usual.request / 2, "it took {:?}", began.elapsed());
}

#[test]
fn objects_with_names_that_no_client_can_say_block_no_run() {
    let (scratch, server) = (Scratch::new(), ObjectServer::start());
    for name in ["bucket/run/p//x", "bucket/run//x", "bucket/run/../x", "bucket/run/x/./y"] {
        server.change(|objects| assert!(objects.insert(name.into(), vec![1]).is_none()));
    }
    let c = opened(with_server(&scratch, &server), &Alone);
    save_and_copy(&c, 1);
    close(&c, &Alone);
    lose_disk(&scratch);
    let c = opened(with_server(&scratch, &server), &Alone);
    assert_eq!(restore(&c, &Alone), Some(1));
    close(&c, &Alone);
    assert_eq!(server.objects().keys().filter(|name| name.contains("x")).count(), 4);
}
