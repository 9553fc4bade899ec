//! The driver, its devices, their links, and the compiler for kernels.

use std::time::Duration;

use super::text::{Bytes, Port, Rate};
use super::{Finding, Level};
use crate::doctor::{Cuda, Device, Diagnosis, Links, Nvrtc, PciLink};

/// Less than this is free: a device tier would be too small to be of use.
const LITTLE: u64 = 1 << 30;
/// The share of what a link carries that copies should reach; 87 % were measured on PCIe 5.0.
const GOOD_SHARE: f64 = 0.6;
/// Where nothing is known about the link: half of PCIe 3.0 x16.
const SLOW: f64 = 6e9;
/// A start that takes longer than this sets the device up from nothing.
const SLOW_START: Duration = Duration::from_secs(3);

pub(super) fn judge(diagnosis: &Diagnosis) -> Vec<Finding> {
    let cuda = &diagnosis.cuda;
    let mut findings: Vec<Finding> = missing(cuda).into_iter().chain(replaced(cuda)).collect();
    findings.extend(cuda.devices.iter().flat_map(device));
    if cuda.driver.is_some() && !diagnosis.kernels.compiled_on.is_empty() {
        findings.extend(compiler(&diagnosis.nvrtc, cuda));
    }
    findings
}

fn missing(cuda: &Cuda) -> Option<Finding> {
    let problem = cuda.problem.as_ref()?;
    Some(Finding::new(
        Level::Missing,
        "CUDA",
        [
            format!("CUDA cannot be used: {problem}."),
            "Spools work, with a device tier in main memory; arrays on a GPU cannot be saved."
                .to_owned(),
            "If this machine has a GPU, mend what the message says; `nvidia-smi` shows whether the \
             driver works. Without a GPU nothing is to be done: leave `device=` out, or say \
             on=\"cpu\"."
                .to_owned(),
        ],
    ))
}

/// A driver that is none, by its name.
fn replaced(cuda: &Cuda) -> Option<Finding> {
    let library = cuda.driver.as_ref()?.path.as_ref()?;
    let name = library.file_name()?.to_string_lossy();
    (!name.starts_with("libcuda.so")).then(|| {
        Finding::new(
            Level::Note,
            "CUDA",
            [
                format!("{} stands for the driver (UNSPOOL_CUDA_DRIVER).", library.display()),
                "What is found here is not what the machine's own driver would say.".to_owned(),
                "Unset the variable unless this is a test.".to_owned(),
            ],
        )
    })
}

fn device(device: &Device) -> Vec<Finding> {
    let all = [broken(device), in_one_piece(device), full(device), slow_start(device)];
    let links = device.links.iter().flat_map(|links| links_of(device, links));
    all.into_iter().flatten().chain(links).collect()
}

fn about(device: &Device) -> String {
    format!("device {}", device.info.ordinal)
}

fn broken(device: &Device) -> Option<Finding> {
    let problem = device.problem.as_ref()?;
    let (level, what, meaning) = match device.free {
        None => (Level::Missing, "cannot be started", "No spool can use this device."),
        Some(_) => {
            (Level::Poor, "could not be measured", "A spool may fail in the same way on it.")
        }
    };
    Some(Finding::new(
        level,
        &about(device),
        [
            format!("It {what}: {problem}"),
            meaning.to_owned(),
            "See whether `nvidia-smi` shows it as healthy, whether another process has it for \
             itself (compute mode), and whether its memory is full."
                .to_owned(),
        ],
    ))
}

fn in_one_piece(device: &Device) -> Option<Finding> {
    (!device.info.maps_in_pieces).then(|| {
        Finding::new(
            Level::Missing,
            &about(device),
            [
                "Its memory cannot be mapped in pieces (virtual memory management).".to_owned(),
                "A device tier cannot be made on it.".to_owned(),
                "Use a driver and a device with virtual memory management: it is off for some \
                 virtual GPUs, and for those who hand them out to turn on."
                    .to_owned(),
            ],
        )
    })
}

fn full(device: &Device) -> Option<Finding> {
    let free = device.free.filter(|&free| free < LITTLE)?;
    Some(Finding::new(
        Level::Poor,
        &about(device),
        [
            format!("Only {} of {} are free.", Bytes(free), Bytes(device.info.memory)),
            "There is no room for a device tier; checkpoints go to the host tier at the rate of \
             the link."
                .to_owned(),
            "Free memory that this or another process holds: `nvidia-smi` lists them. PyTorch and \
             CuPy keep what they have freed (torch.cuda.empty_cache(), \
             cupy.get_default_memory_pool().free_all_blocks()), and JAX takes 75 % at its start \
             (XLA_PYTHON_CLIENT_PREALLOCATE=false)."
                .to_owned(),
        ],
    ))
}

fn slow_start(device: &Device) -> Option<Finding> {
    let start = device.start.filter(|&start| start > SLOW_START)?;
    Some(Finding::new(
        Level::Poor,
        &about(device),
        [
            format!("Its context took {:.1} s to start.", start.as_secs_f64()),
            "Every process that uses it waits as long before its first step.".to_owned(),
            "Turn persistence mode on (nvidia-smi -pm 1, or the service nvidia-persistenced)."
                .to_owned(),
        ],
    ))
}

fn links_of(device: &Device, links: &Links) -> Vec<Finding> {
    let speeds = &links.speeds;
    let slower = speeds.device_to_host.min(speeds.host_to_device);
    let slow = slow_link(device, slower);
    let hindered = speeds.both_each < GOOD_SHARE * slower && slow.is_none();
    let hindered = hindered.then(|| {
        Finding::new(
            Level::Note,
            &about(device),
            [
                format!(
                    "Each direction gives {} while the other one runs, and {} alone.",
                    Rate(speeds.both_each),
                    Rate(slower)
                ),
                "Flushes and prefetches slow each other down when they overlap.".to_owned(),
                "Hold prefetches back until the forward pass ends: expect(..., start=False), then \
                 start_prefetch()."
                    .to_owned(),
            ],
        )
    });
    slow.into_iter().chain(hindered).collect()
}

/// Judged by the most that the device's link can be, since what it is now may be the fault.
fn slow_link(device: &Device, slower: f64) -> Option<Finding> {
    let most = device.pci.most.or(device.pci.now);
    let good = most.map_or(SLOW, |port| GOOD_SHARE * port.bytes_per_second());
    if slower >= good {
        return None;
    }
    let could = most
        .map(|port| format!(", and {} can carry {}", Port(port), Rate(port.bytes_per_second())));
    Some(Finding::new(
        Level::Poor,
        &about(device),
        [
            format!("Pinned copies run at {}{}.", Rate(slower), could.unwrap_or_default()),
            "Flushes and prefetches between the device and the host tier are no faster.".to_owned(),
            narrowed(&device.pci).unwrap_or_else(|| elsewhere(&device.pci)),
        ],
    ))
}

fn narrowed(pci: &PciLink) -> Option<String> {
    let (now, most) = (pci.now?, pci.most?);
    (now.bytes_per_second() < 0.9 * most.bytes_per_second()).then(|| {
        format!(
            "The link runs as {} and the device can do {}: see whether the slot has fewer lanes, \
             whether the card sits well, and what the firmware sets for the slot.",
            Port(now),
            Port(most)
        )
    })
}

fn elsewhere(pci: &PciLink) -> String {
    let node = pci.numa_node.map_or_else(
        || "Bind the process to the processor that the device hangs on (numactl)".to_owned(),
        |node| {
            format!(
                "Bind the process to NUMA node {node}, on which the device hangs (numactl \
                 --cpunodebind={node} --membind={node})"
            )
        },
    );
    format!(
        "{node}, and measure again while nothing else uses the link. In a virtual machine an \
         IOMMU without huge pages can be the reason."
    )
}

fn compiler(nvrtc: &Nvrtc, cuda: &Cuda) -> Option<Finding> {
    if let Some(problem) = &nvrtc.problem {
        return Some(Finding::new(
            Level::Missing,
            "NVRTC",
            [
                problem.clone(),
                "No kernels came with this build for a device of this machine. Its arrays are \
                 encoded by the host; those whose items are scattered in memory are refused, and \
                 those of small rows are copied more slowly."
                    .to_owned(),
                "Install a wheel of Unspool, which has kernels for all supported devices; or pip \
                 install nvidia-cuda-nvrtc, in the release of your driver's CUDA, or name the \
                 library in UNSPOOL_NVRTC."
                    .to_owned(),
            ],
        ));
    }
    let (compiler, driver) = (nvrtc.version?, cuda.driver.as_ref()?.cuda);
    (compiler.0 > driver.0).then(|| {
        Finding::new(
            Level::Poor,
            "NVRTC",
            [
                format!(
                    "NVRTC is of CUDA {}.{} and the driver of CUDA {}.{}.",
                    compiler.0, compiler.1, driver.0, driver.1
                ),
                "The driver may refuse kernels of a newer CUDA.".to_owned(),
                format!("Install a newer driver, or NVRTC of CUDA {}.", driver.0),
            ],
        )
    })
}
