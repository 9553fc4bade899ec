//! What is free is read from made-up files, and promises are counted.

use super::*;
use crate::testing::Scratch;

fn write(scratch: &Scratch, path: &str, text: &str) {
    let path = scratch.0.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn free(bytes: u64) -> Free {
    Free { bytes, limit: "a test".to_owned() }
}

/// A ledger of its own, as other tests make promises meanwhile.
fn ledger() -> &'static Ledger {
    Box::leak(Box::default())
}

#[test]
fn the_machine_is_asked_for_what_is_available() {
    let scratch = Scratch::new();
    write(&scratch, "meminfo", "MemTotal:  900 kB\nMemFree:  1 kB\nMemAvailable:   512 kB\n");
    assert_eq!(machine(&scratch.0.join("meminfo")).unwrap().bytes, 512 * 1024);
}

#[test]
fn a_version_2_group_and_its_ancestors_are_read() {
    let scratch = Scratch::new();
    write(&scratch, "job/memory.max", "1000\n");
    write(&scratch, "job/memory.current", "400\n");
    write(&scratch, "job/memory.stat", "anon 100\ninactive_file 50\nactive_file 25\nfile 999\n");
    write(&scratch, "job/step/memory.max", "max\n");
    write(&scratch, "job/step/memory.current", "10\n");
    let found = groups("0::/job/step\n", &scratch.0);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].bytes, 675);
    assert!(found[0].limit.ends_with("job/memory.max"));
}

#[test]
fn a_version_1_memory_group_is_read_and_others_are_not() {
    let scratch = Scratch::new();
    write(&scratch, "memory/a/memory.limit_in_bytes", "5000\n");
    write(&scratch, "memory/a/memory.usage_in_bytes", "2000\n");
    write(&scratch, "cpu/a/memory.limit_in_bytes", "1\n");
    let found = groups("4:cpu:/a\n3:hugetlb,memory:/a\n", &scratch.0);
    assert_eq!(found.iter().map(|free| free.bytes).collect::<Vec<_>>(), [3000]);
}

#[test]
fn a_group_that_is_not_mounted_is_found_at_the_root() {
    let scratch = Scratch::new();
    write(&scratch, "memory.max", "300\n");
    write(&scratch, "memory.current", "100\n");
    assert_eq!(groups("0::/host/path/of/container\n", &scratch.0)[0].bytes, 200);
}

#[test]
fn more_than_there_is_is_refused_with_the_numbers_and_the_option() {
    let error = ledger().promise(TierKind::Host, 1 << 60, &free(0)).unwrap_err();
    assert_eq!(error.kind(), Failure::NoSpace);
    let text = error.to_string();
    assert!(text.contains("1.00 EiB were asked for; 0 bytes are free by a test"), "{text}");
    assert!(text.contains("option `host` to at most 0 bytes"), "{text}");
}

#[test]
fn what_was_promised_and_not_yet_written_is_not_promised_again() {
    let ledger = ledger();
    let machine = free(1 << 50);
    let first = ledger.promise(TierKind::Device, 3 << 48, &machine).unwrap();
    assert!(ledger.promise(TierKind::Host, 1 << 49, &machine).is_err());
    first.kept_up_to(1 << 49);
    drop(ledger.promise(TierKind::Host, 1 << 49, &machine).unwrap());
    drop(first);
    assert_eq!(ledger.0.load(Ordering::Relaxed), 0);
}

#[test]
fn this_machine_says_how_much_is_free() {
    let free = Free::of_this_process();
    assert!(free.bytes > 1 << 20 && free != Free::unknown(), "{free:?}");
}
