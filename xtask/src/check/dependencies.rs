//! The dependency rule: which of our crates may import which (ARCHITECTURE.md).

use crate::finding::Finding;
use crate::metadata::{Kind, Package};

const CORE: &str = "unspool-core";
const SCHEDULE: &str = "unspool-schedule";
const VERIFY: &str = "unspool-verify";
const CODEC: &str = "unspool-codec";
const CUDA: &str = "unspool-cuda";
const GPU_CODEC: &str = "unspool-gpu-codec";
const TIERS: &str = "unspool-tiers";
const TRANSFER: &str = "unspool-transfer";
const SPOOL: &str = "unspool";
const REMOTE: &str = "unspool-remote";
const RESTART: &str = "unspool-restart";
const PAGING: &str = "unspool-paging";
const WAVE: &str = "unspool-wave";
const TESTKIT: &str = "unspool-testkit";
const SIM: &str = "unspool-sim";
const FAKECUDA: &str = "unspool-fakecuda";
const GPU_TESTS: &str = "unspool-gpu-tests";
const INTERLEAVINGS: &str = "unspool-interleavings";
const BENCHES: &str = "unspool-benches";
const PYTHON: &str = "unspool-python";
const C: &str = "unspool-c";
const VELOC: &str = "unspool-veloc";
const MESSAGES: &str = "unspool-messages";
const RECORDER: &str = "unspool-recorder";
const PAGER: &str = "unspool-pager";
const STUDIES: &str = "unspool-studies";
const XTASK: &str = "xtask";

/// Everything but the bindings: what test beds and benchmarks may import.
const ALL_BUT_BINDINGS: &[&str] = &[
    CORE, SCHEDULE, VERIFY, CODEC, CUDA, GPU_CODEC, TIERS, REMOTE, TRANSFER, SPOOL, RESTART,
    PAGING, TESTKIT, SIM,
];

/// Who may import whom, as a normal or build dependency.
const TABLE: &[(&str, &[&str])] = &[
    (CORE, &[]),
    (SCHEDULE, &[CORE]),
    (VERIFY, &[]),
    (CODEC, &[CORE]),
    (CUDA, &[VERIFY]),
    (GPU_CODEC, &[CODEC, CUDA]),
    (TIERS, &[CORE, CUDA, VERIFY]),
    (REMOTE, &[CORE, TIERS]),
    (TRANSFER, &[CORE, CODEC, CUDA, TIERS]),
    (SPOOL, &[CORE, VERIFY, CODEC, CUDA, GPU_CODEC, TIERS, TRANSFER]),
    (RESTART, &[SPOOL, CODEC, REMOTE]),
    (PAGING, &[CORE, CODEC, TIERS]),
    (WAVE, &[]),
    (STUDIES, &[WAVE, CORE, SCHEDULE]),
    (PYTHON, &[SPOOL, RESTART, PAGING, CORE, SCHEDULE, VERIFY, CODEC]),
    (C, &[SPOOL, RESTART, CORE, SCHEDULE, CODEC]),
    (VELOC, &[SPOOL, RESTART, REMOTE, CODEC]),
    (MESSAGES, &[CODEC]),
    (RECORDER, &[MESSAGES]),
    (PAGER, &[PAGING, CODEC]),
    (TESTKIT, ALL_BUT_BINDINGS),
    (SIM, ALL_BUT_BINDINGS),
    (FAKECUDA, &[CODEC, CORE]),
    (GPU_TESTS, ALL_BUT_BINDINGS),
    // What transfer and spool may import: their sources are compiled there.
    (INTERLEAVINGS, &[CORE, VERIFY, CODEC, CUDA, GPU_CODEC, TIERS]),
    (BENCHES, ALL_BUT_BINDINGS),
    (XTASK, &[]),
];

/// What tests, examples and benchmarks may import besides.
const FOR_TESTS: &[&str] = &[TESTKIT, FAKECUDA];

/// Imports that the table does not allow, and packages that it does not name.
pub fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(|package| judge(package, packages)).collect()
}

fn judge(package: &Package, packages: &[Package]) -> Vec<Finding> {
    let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == package.name) else {
        return vec![Finding::new(
            &package.manifest,
            1,
            format!("the package {} is not in the dependency table", package.name),
            "every crate has a place in the one way that data flows",
            "Add it to xtask/src/check/dependencies.rs and to ARCHITECTURE.md",
        )];
    };
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let edges = package.dependencies.iter().filter(|edge| ours(&edge.name));
    edges
        .filter(|edge| !allowed.contains(&edge.name.as_str()))
        .filter(|edge| edge.kind != Kind::Development || !FOR_TESTS.contains(&edge.name.as_str()))
        .map(|edge| {
            Finding::new(
                &package.manifest,
                1,
                format!("{} imports {}", package.name, edge.name),
                "the dependency table of ARCHITECTURE.md does not allow it",
                "Move the code to where both may import it, or hand the thing in from outside",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{CODEC, CORE, TESTKIT, check};
    use crate::metadata::{Dependency, Kind, Package};

    fn package(name: &str, edges: &[(&str, Kind)]) -> Package {
        let edge = |(name, kind): &(&str, Kind)| Dependency { name: (*name).into(), kind: *kind };
        Package {
            name: name.into(),
            version: "1.0.0".into(),
            manifest: format!("engine/{name}/Cargo.toml"),
            dependencies: edges.iter().map(edge).collect(),
        }
    }

    #[test]
    fn an_import_against_the_flow_is_found() {
        let codec = package(CODEC, &[(CORE, Kind::Normal)]);
        let upwards = package(CORE, &[(CODEC, Kind::Normal)]);
        let found = check(&[codec, upwards]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "unspool-core imports unspool-codec");
    }

    #[test]
    fn tests_may_use_the_testkit_and_shipped_code_may_not() {
        let kit = package(TESTKIT, &[]);
        assert_eq!(check(&[kit.clone(), package(CODEC, &[(TESTKIT, Kind::Development)])]), []);
        assert_eq!(check(&[kit.clone(), package(CODEC, &[(TESTKIT, Kind::Normal)])]).len(), 1);
        assert_eq!(check(&[kit, package(CODEC, &[(TESTKIT, Kind::Build)])]).len(), 1);
    }

    #[test]
    fn packages_of_others_are_not_judged_and_new_ones_of_ours_need_a_place() {
        assert_eq!(check(&[package(CORE, &[("libc", Kind::Normal)])]), []);
        assert!(check(&[package("unspool-new", &[])])[0].what.contains("not in the dependency"));
    }
}
