//! The processes of one job on this node, which share its memory and its GPUs.

use std::path::Path;

/// The variables by which launchers say how many processes they have started on a node: torchrun,
/// Open MPI, MPICH and Intel MPI, MVAPICH, Slurm.
const VARIABLES: [&str; 5] = [
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "SLURM_NTASKS_PER_NODE",
];

/// How many processes of a job are on this node, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranks {
    /// At least 2.
    pub count: u64,
    /// The variable of the environment that says it.
    pub by: &'static str,
}

impl Ranks {
    /// Those of this process; `None` where it is alone, or no launcher says.
    #[must_use]
    pub fn here() -> Option<Ranks> {
        Ranks::among(|name| std::env::var(name).ok())
    }

    fn among(value: impl Fn(&str) -> Option<String>) -> Option<Ranks> {
        // The innermost launcher counts: mpirun in a job of Slurm.
        let said = VARIABLES.into_iter().find_map(|by| {
            let count = value(by)?.trim().parse().ok().filter(|&count: &u64| count > 0)?;
            Some(Ranks { count, by })
        });
        said.filter(|ranks| ranks.count > 1)
    }

    /// How many processes share a GPU, where each process sees `visible` ones: 1 where this one is
    /// alone.
    #[must_use]
    pub fn on_a_gpu(visible: usize) -> u64 {
        let gpus = || visible.max(gpus_of_the_node(Path::new("/proc/driver/nvidia/gpus")));
        Ranks::here().map_or(1, |ranks| ranks.spread_over(gpus()))
    }

    fn spread_over(self, gpus: usize) -> u64 {
        self.count.div_ceil(gpus.max(1) as u64)
    }
}

/// GPUs of the machine, those that this process may not see included.
fn gpus_of_the_node(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(variables: &[(&str, &str)]) -> Option<(u64, &'static str)> {
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Ranks::among(value).map(|ranks| (ranks.count, ranks.by))
    }

    #[test]
    fn launchers_say_how_many_processes_are_on_a_node() {
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[("SLURM_NTASKS_PER_NODE", "8")]), Some((8, "SLURM_NTASKS_PER_NODE")));
        let nested = [("SLURM_NTASKS_PER_NODE", "1"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "4")];
        assert_eq!(said(&nested), Some((4, "OMPI_COMM_WORLD_LOCAL_SIZE")));
        for alone in ["1", "0", "", "8(x2)", "-3"] {
            assert_eq!(said(&[("LOCAL_WORLD_SIZE", alone)]), None, "{alone}");
        }
    }

    #[test]
    fn processes_are_spread_over_the_gpus() {
        let ranks = Ranks { count: 8, by: "x" };
        for (gpus, together) in [(0, 8), (1, 8), (2, 4), (3, 3), (8, 1), (16, 1)] {
            assert_eq!(ranks.spread_over(gpus), together);
        }
        assert_eq!(gpus_of_the_node(Path::new("/nonexistent")), 0);
    }
}
