//! How many lines each room of the product has, without its tests: what was reached, not exceeded.

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// One room: a part that one person can maintain with one page about the rest in mind.
struct Room {
    name: &'static str,
    folders: &'static [&'static str],
    most: usize,
}

const fn room(name: &'static str, folders: &'static [&'static str], most: usize) -> Room {
    Room { name, folders, most }
}

/// The rooms. A commit that makes one larger raises its figure here, and says why.
const ROOMS: &[Room] = &[
    room("core", &["engine/core"], 7_520),
    room("verify", &["engine/verify"], 1_460),
    room("transfer", &["engine/transfer"], 2_170),
    room("codec", &["engine/codec"], 8_850),
    room("cuda", &["engine/cuda"], 9_330),
    room("gpu_codec", &["engine/gpu_codec"], 11_450),
    room("tiers", &["engine/tiers"], 7_600),
    room("spool", &["engine/spool"], 15_150),
    room("restart", &["restart"], 8_630),
    room("adjoint", &["adjoint"], 6_320),
    room("python, native", &["python/src"], 13_780),
    room("python, package", &["python/package"], 40_960),
    room("c", &["c"], 4_710),
    room("messages", &["packages/messages"], 13_960),
    room("paging", &["packages/paging"], 5_230),
    room("veloc", &["packages/veloc"], 3_590),
];

const SOURCE: &[&str] =
    &["rs", "py", "pyi", "cu", "cuh", "c", "h", "cpp", "hpp", "f90", "F90", "toml", "sh"];

/// Rooms with more lines than they had.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let grown = ROOMS.iter().map(|room| (room, lines(tree, room)));
    grown
        .filter(|(room, lines)| *lines > room.most)
        .map(|(room, lines)| {
            Finding::new(
                "xtask/src/check/rooms.rs",
                1,
                format!("{} has {lines} lines, and had at most {}", room.name, room.most),
                "a room grows by a decision, not by the way",
                "Take out as much, or raise its figure in the commit that says why",
            )
        })
        .collect()
}

/// The lines of each room, one a line of text, and of all together.
pub fn table(tree: &Tree) -> String {
    let counted: Vec<(&str, usize)> =
        ROOMS.iter().map(|room| (room.name, lines(tree, room))).collect();
    let all = counted.iter().map(|(_, lines)| lines).sum();
    let rows = counted.into_iter().chain([("the product", all)]);
    rows.map(|(name, lines)| format!("{lines:8}  {name}\n")).collect()
}

fn lines(tree: &Tree, room: &Room) -> usize {
    let own = |file: &&File| room.folders.iter().any(|folder| file.within(folder));
    let product = tree.files.iter().filter(own).filter(|file| is_product(file));
    product.map(|file| file.text.lines().count()).sum()
}

/// Whether it is neither a test nor a benchmark nor an example.
fn is_product(file: &File) -> bool {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let apart = ["/tests/", "/benches/", "/examples/", "_tests."];
    file.is(SOURCE)
        && !apart.iter().any(|part| file.path.contains(part))
        && !name.starts_with("test_")
        && !name.starts_with("tests")
}

#[cfg(test)]
mod tests {
    use super::{ROOMS, check, table};
    use crate::tree::Tree;

    #[test]
    fn a_room_that_grew_is_found_by_its_lines_without_tests() {
        let most = ROOMS[0].most;
        let at = "x\n".repeat(most);
        let tests = ("engine/core/tests/a.rs", "x\n");
        assert_eq!(check(&Tree::of(&[("engine/core/src/a.rs", &at), tests])), []);
        let found = check(&Tree::of(&[("engine/core/src/a.rs", &(at + "x\n"))]));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.starts_with(&format!("core has {} lines", most + 1)));
    }

    #[test]
    fn the_table_has_a_row_for_each_room_and_one_for_all() {
        let said = table(&Tree::of(&[("restart/src/a.rs", "1\n2\n"), ("c/src/b.rs", "1\n")]));
        assert_eq!(said.lines().count(), ROOMS.len() + 1);
        assert!(said.contains("       2  restart\n") && said.contains("       3  the product\n"));
    }

    #[test]
    fn every_crate_of_the_product_is_in_a_room() {
        let tree = Tree::read(&crate::root()).unwrap();
        let crates = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
        let outside = ["tests/", "lab/", "fuzz/", "xtask/", "python/Cargo.toml"];
        for file in crates.filter(|file| !outside.iter().any(|one| file.path.starts_with(one))) {
            let rooms = ROOMS.iter().flat_map(|room| room.folders);
            assert_eq!(rooms.filter(|folder| file.within(folder)).count(), 1, "{}", file.path);
        }
    }
}
