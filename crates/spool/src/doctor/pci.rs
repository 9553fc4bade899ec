//! How a device is plugged in, as the kernel sees it: what its link could carry explains what was
//! measured.

use super::system::System;

/// The PCI link of a device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PciLink {
    /// What it runs at now; links slow down when they are idle.
    pub now: Option<PciPort>,
    /// The most that the device can do.
    pub most: Option<PciPort>,
    /// The NUMA node that it hangs on.
    pub numa_node: Option<u32>,
}

/// A speed and a width.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PciPort {
    /// Transfers per second and lane, in 1e9.
    pub gigatransfers: f64,
    /// Lanes.
    pub lanes: u32,
}

impl PciPort {
    /// What it can carry in one direction before packet headers, in bytes per second. Up to 5 GT/s
    /// lanes spend 2 bits of 10 on coding, from 8 GT/s on 2 of 130 (PCI Express Base
    /// Specification, sections 4.2.1 and 4.2.2).
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        let coding = if self.gigatransfers < 8.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
        self.gigatransfers * 1e9 * coding / 8.0 * f64::from(self.lanes)
    }

    /// The generation of PCI Express with this speed.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        const SPEEDS: [f64; 6] = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
        let index = SPEEDS.iter().position(|speed| (speed - self.gigatransfers).abs() < 0.01)?;
        u32::try_from(index + 1).ok()
    }
}

/// The link of the device at `address`, as the driver writes it.
pub(super) fn link(system: &System, address: &str) -> PciLink {
    let folder = format!("sys/bus/pci/devices/{}", kernels_name(address));
    let port = |which: &str| {
        let speed = system.text(format!("{folder}/{which}_link_speed"))?;
        let lanes = system.number(format!("{folder}/{which}_link_width"))?;
        // Such as `32.0 GT/s PCIe`.
        let gigatransfers = speed.split_whitespace().next()?.parse().ok()?;
        (lanes > 0 && gigatransfers > 0.0).then_some(PciPort { gigatransfers, lanes })
    };
    PciLink {
        now: port("current"),
        most: port("max"),
        // -1 stands for "no node".
        numa_node: system.number(format!("{folder}/numa_node")),
    }
}

/// The driver writes upper case and sometimes eight digits of domain; the kernel lower case and
/// four.
fn kernels_name(address: &str) -> String {
    let address = address.to_ascii_lowercase();
    match address.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[domain.len() - 4..])
        }
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::tests::Fake;

    #[test]
    fn a_link_is_read_under_the_kernels_name_of_the_device() {
        let fake = Fake::new();
        let folder = "sys/bus/pci/devices/0000:1b:00.0";
        for (file, text) in [
            ("current_link_speed", "16.0 GT/s PCIe\n"),
            ("current_link_width", "8\n"),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
            ("numa_node", "-1\n"),
        ] {
            fake.write(&format!("{folder}/{file}"), text);
        }
        for address in ["0000:1B:00.0", "00000000:1B:00.0"] {
            let link = link(&fake.system(), address);
            assert_eq!(link.now, Some(PciPort { gigatransfers: 16.0, lanes: 8 }), "{address}");
            assert_eq!(link.most.and_then(|port| port.generation()), Some(5), "{address}");
            assert_eq!(link.numa_node, None);
        }
        assert_eq!(link(&fake.system(), "0000:ff:00.0"), PciLink::default());
    }

    #[test]
    fn a_port_carries_what_the_standard_says() {
        let rate = |gigatransfers, lanes| {
            (PciPort { gigatransfers, lanes }.bytes_per_second() / 1e7).round() / 100.0
        };
        assert_eq!(rate(2.5, 1), 0.25);
        assert_eq!(rate(8.0, 16), 15.75);
        assert_eq!(rate(32.0, 16), 63.02);
    }

    #[test]
    fn a_link_of_unknown_width_is_not_known() {
        let fake = Fake::new();
        let folder = "sys/bus/pci/devices/0000:00:04.0";
        fake.write(&format!("{folder}/current_link_speed"), "Unknown\n");
        fake.write(&format!("{folder}/current_link_width"), "0\n");
        assert_eq!(link(&fake.system(), "0000:00:04.0").now, None);
    }
}
