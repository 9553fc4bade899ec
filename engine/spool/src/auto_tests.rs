//! The decisions, on figures that are handed in, and what this machine says.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn device_of(free: u64, total: u64, sharing: u64) -> DeviceMemoryFound {
    DeviceMemoryFound { ordinal: 1, free, total, sharing }
}

fn host_of(free: u64, lockable: Option<u64>) -> HostMemoryFound {
    let (limit, most) = ("a test".to_owned(), Some(64 * GIB));
    HostMemoryFound { free: Some(free), limit, most, lockable, ..HostMemoryFound::default() }
}

#[test]
fn a_device_tier_takes_half_of_what_is_free_after_what_is_spared() {
    let figures = device_of(78 * GIB + 512 * MIB, 80 * GIB, 1);
    let picked = share_of_device(&figures).unwrap();
    assert_eq!(picked.bytes, 39 * GIB);
    for part in ["39 GiB", "50 %", "512 MiB", "78.5 GiB of 80 GiB", "device 1"] {
        assert!(picked.sentence.contains(part), "{part}: {}", picked.sentence);
    }
}

#[test]
fn processes_that_share_a_device_get_the_same_whoever_comes_first() {
    let picked = |free| share_of_device(&device_of(free, 80 * GIB + 512 * MIB, 8)).unwrap();
    assert_eq!(picked(80 * GIB).bytes, 5 * GIB);
    assert_eq!(picked(50 * GIB).bytes, 5 * GIB);
    assert!(picked(50 * GIB).sentence.contains("for one of 8 processes that share it"));
    assert!(picked(3 * GIB).bytes < 3 * GIB, "no more than there is");
}

#[test]
fn processes_of_a_node_get_the_same_whatever_is_free() {
    let ranks = Some(Ranks { count: 8, by: "LOCAL_WORLD_SIZE" });
    let at = |free| share_of_host(&HostMemoryFound { ranks, ..host_of(free, None) }).unwrap();
    for free in [64 * GIB, 36 * GIB, 5 * GIB, 0] {
        assert_eq!(at(free).bytes, 4 * GIB, "{free}");
    }
    let sentence = at(36 * GIB).sentence;
    let part = "50 % of 64 GiB, for one of 8 processes of this node (LOCAL_WORLD_SIZE)";
    assert!(sentence.contains(part), "{sentence}");
}

#[test]
fn a_full_device_is_an_error_with_the_figures_and_a_remedy() {
    let figures = device_of(600 * MIB, 80 * GIB, 1);
    let error = share_of_device(&figures).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    for part in ["600 MiB of 80 GiB", "64 MiB", "nvidia-smi", "leave the device tier out"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_host_tier_takes_up_to_half_of_what_is_free_and_opens_however_little_that_is() {
    let picked = share_of_host(&host_of(60 * GIB, None)).unwrap();
    assert_eq!(picked.bytes, 30 * GIB);
    for part in ["takes up to 30 GiB", "50 % of what is free", "60 GiB are free by a test"] {
        assert!(picked.sentence.contains(part), "{part}: {}", picked.sentence);
    }
    assert_eq!(share_of_host(&host_of(MIB, None)).unwrap().bytes, LEAST);
}

#[test]
fn the_limit_on_locked_memory_counts_where_it_is_tighter() {
    let tight = share_of_host(&host_of(64 * GIB, Some(8 * GIB + 64 * MIB))).unwrap();
    assert_eq!(tight.bytes, 8 * GIB);
    assert!(tight.sentence.contains("ulimit -l"), "{}", tight.sentence);
    let wide = share_of_host(&host_of(64 * GIB, Some(50 * GIB))).unwrap();
    assert_eq!(wide.bytes, 32 * GIB);
    assert!(wide.sentence.contains("50 % of what is free"), "{}", wide.sentence);
    assert!(share_of_host(&host_of(64 * GIB, Some(8 * MIB))).unwrap().bytes == LEAST);
}

#[test]
fn both_tiers_in_main_memory_leave_a_part_of_it() {
    let free = host_of(64 * GIB, None);
    let (device, host) = (stand_in(&free).unwrap().bytes, share_of_host(&free).unwrap().bytes);
    assert_eq!((device, host), (16 * GIB, 32 * GIB));
}

#[test]
fn memory_that_is_unknown_is_an_error_that_names_the_tier() {
    let unknown = stand_in(&HostMemoryFound::default()).unwrap_err();
    assert!(unknown.message().contains("device_memory=\"auto\""), "{unknown}");
    assert!(unknown.message().contains("cannot be read"), "{unknown}");
}

proptest! {
    #[test]
    fn what_is_picked_is_whole_pages_and_at_most_half(
        free: u64, total: u64, lockable: Option<u64>
    ) {
        if let Ok(picked) = share_of_device(&device_of(free, total, 1)) {
            prop_assert!(picked.bytes.is_multiple_of(PAGE) && picked.bytes >= LEAST);
            prop_assert!(picked.bytes <= (free - DEVICE_SPARED) / 2);
        }
        let picked = share_of_host(&host_of(free, lockable)).unwrap();
        prop_assert!(picked.bytes.is_multiple_of(PAGE) && picked.bytes >= LEAST);
        prop_assert!(picked.bytes <= (free / 2).max(LEAST));
        let most = lockable.map(|most| most.saturating_sub(LOCKED_SPARED).max(LEAST));
        prop_assert!(most.is_none_or(|most| picked.bytes <= most));
    }
}

#[test]
fn on_the_cpu_both_are_picked_from_main_memory_and_a_spool_opens_with_them() {
    let mut settings = Settings { on: On::Cpu, ..Settings::default() };
    let picked = device(&settings.on).unwrap();
    assert!(picked.sentence.contains("25 %"), "{}", picked.sentence);
    settings.device = Some(picked.bytes);
    let picked = host(&settings).unwrap();
    assert!(picked.sentence.contains("takes up to"), "{}", picked.sentence);
    settings.host = Some(picked.bytes);
    crate::Spool::open(settings).unwrap().close().unwrap();
}

#[test]
fn without_cuda_an_automatic_device_tier_is_an_error_with_both_ways_out() {
    match device(&On::Auto) {
        Ok(picked) => assert!(picked.bytes >= LEAST),
        Err(error) if error.kind() == ErrorKind::NoDevice => {
            for part in ["device_memory=\"4GiB\"", "device=\"cpu\"", "unspool doctor"] {
                assert!(error.message().contains(part), "{part}: {error}");
            }
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    assert_eq!(device(&On::Cuda(Some(4000))).unwrap_err().kind(), ErrorKind::NoDevice);
}
