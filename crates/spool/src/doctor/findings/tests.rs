//! Each fault of a made-up machine is found, and none of a good one.

use std::path::PathBuf;
use std::time::Duration;

use unspool_cuda::DeviceInfo;
use unspool_cuda::probe::LinkSpeeds;

use super::*;
use crate::doctor::{
    Automatic, Cuda, Device, Disk, Driver, Host, HugePages, Kernels, Leftover, Links, Mount, Nvrtc,
    Owner, PciLink, PciPort, Turns, disk::Rates,
};

const GIB: u64 = 1 << 30;
const FAST: PciPort = PciPort { gigatransfers: 32.0, lanes: 16 };

fn good_device() -> Device {
    Device {
        info: DeviceInfo {
            ordinal: 0,
            name: "NVIDIA H100".to_owned(),
            memory: 80 * GIB,
            compute_capability: (9, 0),
            pci: "0000:1b:00.0".to_owned(),
            maps_host_memory: true,
            maps_in_pieces: true,
            integrated: false,
            copy_engines: 3,
            multiprocessors: 132,
        },
        pci: PciLink { now: Some(FAST), most: Some(FAST), numa_node: Some(1) },
        free: Some(78 * GIB),
        start: Some(Duration::from_millis(300)),
        links: Some(Links { speeds: speeds(55e9, 48e9), bytes: 64 << 20, rounds: 8 }),
        pins_are_locked: Some(false),
        problem: None,
    }
}

fn speeds(alone: f64, both_each: f64) -> LinkSpeeds {
    LinkSpeeds { device_to_host: alone, host_to_device: alone, both_each, device_to_device: 1.2e12 }
}

fn good_disk() -> Disk {
    Disk {
        dir: PathBuf::from("/scratch"),
        mount: Some(mount("xfs")),
        free: Some(900 * GIB),
        total: Some(1000 * GIB),
        direct: Some(true),
        io_uring: Some(true),
        rates: Some(Rates { write: 1.5e9, read: 2.9e9, bytes: GIB, frame: 32 << 20 }),
        ..Disk::default()
    }
}

fn mount(kind: &str) -> Mount {
    Mount { point: PathBuf::from("/scratch"), kind: kind.to_owned(), source: "x".to_owned() }
}

/// A machine on which nothing is to be found.
fn good() -> Diagnosis {
    Diagnosis {
        version: "0",
        host: Host {
            kernel: None,
            cores: 16,
            total: Some(128 * GIB),
            available: Some(120 * GIB),
            free: Some(120 * GIB),
            limit: "the machine".to_owned(),
            promised: 0,
            locked_soft: Some(8 << 20),
            locked_hard: Some(8 << 20),
            huge_pages: HugePages::Madvise,
            strict_overcommit: false,
        },
        cuda: Cuda {
            looked_for: true,
            driver: Some(Driver { cuda: (13, 0), path: None, module: None }),
            devices: vec![good_device()],
            problem: None,
        },
        kernels: Kernels { sentence: String::new(), compiled_on: vec![0] },
        nvrtc: Nvrtc { path: None, version: Some((13, 0)), problem: None },
        turns: Turns {
            path: PathBuf::from("/dev/shm/x.lock"),
            exists: true,
            holder: None,
            problem: None,
        },
        disk: Some(good_disk()),
        automatic: Automatic::default(),
        findings: Vec::new(),
    }
}

/// The only finding after `change` was made to a good machine.
fn one(change: impl FnOnce(&mut Diagnosis)) -> Finding {
    let mut diagnosis = good();
    change(&mut diagnosis);
    let mut findings = all(&diagnosis);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

fn device(change: impl FnOnce(&mut Device)) -> Finding {
    one(|diagnosis| change(&mut diagnosis.cuda.devices[0]))
}

fn disk(change: impl FnOnce(&mut Disk)) -> Finding {
    one(|diagnosis| change(diagnosis.disk.get_or_insert_default()))
}

#[test]
fn on_a_good_machine_nothing_is_found() {
    assert_eq!(all(&good()), []);
}

#[test]
fn without_cuda_only_that_is_found_and_kernels_are_not_missed() {
    let finding = one(|diagnosis| {
        diagnosis.cuda =
            Cuda { looked_for: true, problem: Some("no CUDA driver".into()), ..Cuda::default() };
        diagnosis.nvrtc = Nvrtc { problem: Some("nowhere".to_owned()), ..Nvrtc::default() };
    });
    assert_eq!((finding.level, finding.about.as_str()), (Level::Missing, "CUDA"));
    assert!(finding.what.contains("no CUDA driver"));
    assert!(finding.remedy.contains("nvidia-smi") && finding.remedy.contains("on=\"cpu\""));
}

#[test]
fn a_device_that_does_not_start_is_worse_than_one_that_cannot_be_measured() {
    let dead = device(|device| {
        (device.free, device.links, device.start) = (None, None, None);
        device.problem = Some("exclusive.".to_owned());
    });
    assert_eq!((dead.level, dead.about.as_str()), (Level::Missing, "device 0"));
    let odd = device(|device| {
        (device.links, device.problem) = (None, Some("out of memory.".to_owned()));
    });
    assert_eq!(odd.level, Level::Poor);
    assert!(odd.what.contains("could not be measured: out of memory."));
}

#[test]
fn a_full_device_is_told_with_both_figures_and_who_may_hold_it() {
    let finding = device(|device| device.free = Some(300 << 20));
    assert!(finding.what.contains("300 MiB of 80.0 GiB"), "{finding:?}");
    assert!(finding.remedy.contains("nvidia-smi") && finding.remedy.contains("empty_cache"));
}

#[test]
fn a_device_without_virtual_memory_management_has_no_device_tier() {
    let finding = device(|device| device.info.maps_in_pieces = false);
    assert_eq!(finding.level, Level::Missing);
}

#[test]
fn a_narrowed_link_is_told_apart_from_one_that_others_slow_down() {
    let slow = Links { speeds: speeds(12e9, 11e9), bytes: 1, rounds: 1 };
    let narrow = device(|device| {
        device.links = Some(slow);
        device.pci.now = Some(PciPort { gigatransfers: 16.0, lanes: 8 });
    });
    assert!(narrow.what.contains("12.0 GB/s, and PCIe 5.0 x16 can carry 63.0 GB/s"), "{narrow:?}");
    assert!(narrow.remedy.contains("runs as PCIe 4.0 x8"), "{narrow:?}");
    let far = device(|device| device.links = Some(slow));
    assert!(far.remedy.contains("--cpunodebind=1"), "{far:?}");
}

#[test]
fn a_link_that_nothing_is_known_about_is_judged_by_its_rate_alone() {
    let unknown = |rate| {
        let mut diagnosis = good();
        diagnosis.cuda.devices[0].pci = PciLink::default();
        diagnosis.cuda.devices[0].links =
            Some(Links { speeds: speeds(rate, rate), bytes: 1, rounds: 1 });
        all(&diagnosis).len()
    };
    assert_eq!((unknown(3e9), unknown(12e9)), (1, 0));
}

#[test]
fn directions_that_hinder_each_other_are_noted() {
    let finding = device(|device| {
        device.links = Some(Links { speeds: speeds(55e9, 27e9), bytes: 1, rounds: 1 });
    });
    assert_eq!(finding.level, Level::Note);
    assert!(finding.what.contains("27.0 GB/s while the other one runs, and 55.0 GB/s alone"));
}

#[test]
fn a_context_that_starts_slowly_calls_for_persistence_mode() {
    let finding = device(|device| device.start = Some(Duration::from_secs(9)));
    assert!(finding.remedy.contains("persistence mode"));
}

#[test]
fn a_library_in_the_place_of_the_driver_is_named() {
    let library = |path: &str| {
        let mut diagnosis = good();
        let driver = diagnosis.cuda.driver.get_or_insert_default();
        driver.path = Some(PathBuf::from(path));
        all(&diagnosis)
    };
    assert_eq!(library("/usr/lib/libcuda.so.580.82.07"), []);
    let found = library("/x/libfake.so");
    assert!(found[0].what.contains("/x/libfake.so"), "{found:?}");
}

#[test]
fn a_compiler_that_is_missing_or_too_new_is_found() {
    let missing = one(|diagnosis| {
        diagnosis.nvrtc = Nvrtc { problem: Some("It is nowhere.".to_owned()), ..Nvrtc::default() };
    });
    assert_eq!((missing.level, missing.about.as_str()), (Level::Missing, "NVRTC"));
    let mut shipped = good();
    shipped.kernels.compiled_on.clear();
    shipped.nvrtc = Nvrtc { problem: Some("It is nowhere.".to_owned()), ..Nvrtc::default() };
    assert_eq!(all(&shipped), [], "nobody needs it");
    let newer = one(|diagnosis| diagnosis.nvrtc.version = Some((14, 0)));
    assert!(newer.what.contains("CUDA 14.0 and the driver of CUDA 13.0"));
}

#[test]
fn the_limit_on_locked_memory_counts_only_where_pinning_counts() {
    let finding = device(|device| device.pins_are_locked = Some(true));
    assert!(finding.what.contains("8.00 MiB can be locked"), "{finding:?}");
    let mut unlimited = good();
    unlimited.cuda.devices[0].pins_are_locked = Some(true);
    unlimited.host.locked_soft = None;
    assert_eq!(all(&unlimited), []);
}

#[test]
fn memory_that_is_short_or_in_small_pages_is_found() {
    let short = one(|diagnosis| diagnosis.host.free = Some(100 << 20));
    assert!(short.what.contains("100 MiB are free, by the machine"), "{short:?}");
    let small = one(|diagnosis| diagnosis.host.huge_pages = HugePages::Never);
    assert!(small.remedy.contains("echo madvise >"));
    let strict = one(|diagnosis| diagnosis.host.strict_overcommit = true);
    assert_eq!(strict.level, Level::Note);
}

#[test]
fn a_lock_of_the_turns_that_cannot_be_opened_is_found_where_there_is_a_device() {
    let broken = |diagnosis: &mut Diagnosis| diagnosis.turns.problem = Some("denied".to_owned());
    assert_eq!(one(broken).about, "turns");
    let mut without = good();
    broken(&mut without);
    without.cuda = Cuda::default();
    assert_eq!(all(&without), []);
}

#[test]
fn of_a_directory_that_cannot_be_used_nothing_else_is_said() {
    let finding = disk(|disk| {
        *disk = Disk { problem: Some("denied".to_owned()), free: Some(0), ..Disk::default() };
    });
    assert_eq!(finding.level, Level::Missing);
}

#[test]
fn what_is_no_good_disk_is_found() {
    assert!(disk(|disk| disk.mount = Some(mount("tmpfs"))).what.contains("main memory (tmpfs)"));
    assert_eq!(disk(|disk| disk.mount = Some(mount("lustre"))).level, Level::Note);
    let cached = disk(|disk| disk.direct_problem = Some("EINVAL.".to_owned()));
    assert!(cached.what.contains("EINVAL") && cached.level == Level::Poor);
    assert!(disk(|disk| disk.free = Some(5)).what.contains("Only 5 bytes"));
    let slow = disk(|disk| {
        disk.rates = Some(Rates { write: 9e7, read: 3e8, bytes: 1, frame: 1 });
    });
    assert!(slow.what.contains("writes 90 MB/s and reads 300 MB/s"), "{slow:?}");
    let no_ring = disk(|disk| disk.io_uring_problem = Some("EPERM.".to_owned()));
    assert_eq!(no_ring.level, Level::Note);
}

#[test]
fn memory_that_cannot_do_direct_output_is_found_once() {
    let finding = disk(|disk| {
        disk.mount = Some(mount("tmpfs"));
        (disk.direct, disk.direct_problem) = (Some(false), Some("EINVAL.".to_owned()));
    });
    assert!(finding.what.contains("tmpfs"));
}

#[test]
fn what_dead_processes_left_is_counted_and_what_is_in_use_is_not() {
    let spool = |owner, bytes| Leftover { path: PathBuf::from("/scratch/x"), bytes, owner };
    let finding = disk(|disk| {
        disk.spools = vec![
            spool(Owner::Dead { pid: 1 }, GIB),
            spool(Owner::Alive { pid: 2 }, 7 * GIB),
            spool(Owner::Dead { pid: 3 }, GIB),
        ];
    });
    assert!(finding.what.contains("left 2 directories of spools there: 2.00 GiB"), "{finding:?}");
    let unknown = disk(|disk| disk.spools = vec![spool(Owner::Unknown { pid: 1 }, GIB)]);
    assert!(unknown.what.contains("For 1 directories"));
}

#[test]
fn the_worst_comes_first() {
    let mut bad = good();
    bad.host.strict_overcommit = true;
    bad.host.huge_pages = HugePages::Never;
    bad.nvrtc.problem = Some("It is nowhere.".to_owned());
    let levels: Vec<Level> = all(&bad).iter().map(|finding| finding.level).collect();
    assert_eq!(levels, [Level::Missing, Level::Poor, Level::Note]);
}
