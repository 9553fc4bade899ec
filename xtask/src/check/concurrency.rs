//! Threads and locks are where the page of a district says: every file of a district that starts a
//! thread or owns a lock is named on its page, and every file named there does so.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::{File, Tree};

/// The page of each district. The district is the page's folder; links are relative to it.
const PAGES: &[&str] = &[
    "engine/ARCHITECTURE.md",
    "restart/README.md",
    "adjoint/README.md",
    "c/README.md",
    "packages/messages/README.md",
    "packages/paging/README.md",
    "packages/veloc/README.md",
];

/// One kind of thing that a page lists: the heading of its table, and how a line of code shows
/// one.
struct Listed {
    heading: &'static str,
    what: &'static str,
    shows: fn(&str) -> bool,
}

const THREADS: Listed =
    Listed { heading: "### Threads", what: "starts a thread", shows: starts_a_thread };
const LOCKS: Listed = Listed { heading: "### Locks", what: "owns a lock", shows: owns_a_lock };

/// Files that their page does not name, and names of files that do nothing of the kind.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let kinds = PAGES.iter().flat_map(|page| [(*page, THREADS), (*page, LOCKS)]);
    kinds.flat_map(|(page, listed)| compare(tree, page, &listed)).collect()
}

fn compare(tree: &Tree, page: &str, listed: &Listed) -> Vec<Finding> {
    let district = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let code: BTreeSet<&str> = tree
        .files
        .iter()
        .filter(|file| file.within(district) && is_shipped(file))
        .filter(|file| shipped_lines(file).any(listed.shows))
        .map(|file| file.path.as_str())
        .collect();
    let text = tree.file(page).map_or("", |file| file.text.as_str());
    let named: BTreeSet<String> = named_below(text, listed.heading)
        .into_iter()
        .map(|link| format!("{district}/{link}"))
        .collect();
    let missing = code.iter().filter(|path| !named.contains(**path)).map(|path| {
        Finding::new(
            *path,
            1,
            format!("it {}, and {page} does not say so", listed.what),
            "readers rely on the page being complete",
            "Add the file to the table, with what it is for, or do without",
        )
    });
    let stale = named.iter().filter(|path| !code.contains(path.as_str())).map(|path| {
        Finding::new(
            page,
            1,
            format!("{path} is in the table below \"{}\"", listed.heading),
            "nothing in that file is of the kind",
            "Take it out of the table",
        )
    });
    missing.chain(stale).collect()
}

/// Rust sources that users run; those of tests stand elsewhere or are called so.
fn is_shipped(file: &File) -> bool {
    let is_test = file.path.contains("/tests/")
        || file.path.ends_with("tests.rs")
        || file.path.ends_with("/interleavings.rs");
    file.is(&["rs"]) && !is_test
}

/// The lines before the tests of the file that are not comments.
fn shipped_lines(file: &File) -> impl Iterator<Item = &str> {
    let lines = file.text.lines().take_while(|line| !is_test_module(line));
    lines.map(str::trim_start).filter(|line| !line.starts_with("//"))
}

fn is_test_module(line: &str) -> bool {
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

fn starts_a_thread(line: &str) -> bool {
    let builds = line.contains("Builder::new()")
        && !["DirBuilder", "tempfile::"].iter().any(|other| line.contains(other));
    builds || line.contains("thread::spawn(")
}

fn owns_a_lock(line: &str) -> bool {
    let names_one = ["Mutex<", "RwLock<"].iter().any(|name| line.contains(name));
    names_one && !line.contains("fn ") && !line.contains('&') && !line.starts_with("use ")
}

/// The files that are linked between this heading and the next one.
fn named_below(page: &str, heading: &str) -> BTreeSet<String> {
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let rows = section.take_while(|line| !line.starts_with('#'));
    rows.flat_map(|row| row.split("](").skip(1))
        .filter_map(|rest| rest.split(')').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{PAGES, check};
    use crate::tree::Tree;

    const PAGE: &str = "### Threads\n\n| [work](a/src/work.rs) | x |\n\n### Locks\n\n\
                        | [table](a/src/table.rs) | x |\n\n## After\n";

    /// The places of the findings in these files, beside pages of two districts.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let restart = "### Threads\n\n| [commit](src/commit.rs) | x |\n";
        let pages = [("engine/ARCHITECTURE.md", PAGE), ("restart/README.md", restart), COMMIT];
        let all: Vec<_> = files.iter().copied().chain(pages).collect();
        check(&Tree::of(&all)).into_iter().map(|finding| finding.path).collect()
    }

    const WORK: (&str, &str) = ("engine/a/src/work.rs", "let t = thread::spawn(|| 1);\n");
    const TABLE: (&str, &str) = ("engine/a/src/table.rs", "struct T {\n    t: Mutex<u8>,\n}\n");
    const COMMIT: (&str, &str) = ("restart/src/commit.rs", "let t = thread::spawn(|| 1);\n");

    #[test]
    fn what_the_pages_name_is_accepted() {
        assert_eq!(found(&[WORK, TABLE]), [""; 0]);
    }

    #[test]
    fn a_thread_and_a_lock_that_the_page_does_not_name_are_found() {
        let thread = ("engine/a/src/b.rs", "Builder::new().name(n).spawn(f);\n");
        let lock = ("engine/a/src/c.rs", "static S: RwLock<u8> = RwLock::new(0);\n");
        assert_eq!(found(&[WORK, TABLE, thread, lock]), [thread.0, lock.0]);
    }

    #[test]
    fn each_district_has_its_own_page() {
        let copy = ("restart/src/work.rs", WORK.1);
        let lock = ("packages/veloc/src/client.rs", "static C: Mutex<u8> = Mutex::new(0);\n");
        assert_eq!(found(&[WORK, TABLE, copy, lock]), [copy.0, lock.0]);
    }

    #[test]
    fn a_row_about_nothing_is_found() {
        assert_eq!(found(&[WORK]), ["engine/ARCHITECTURE.md"]);
    }

    #[test]
    fn every_page_is_there() {
        let tree = Tree::read(&crate::root()).unwrap();
        assert!(PAGES.iter().all(|page| tree.file(page).is_some()));
    }

    #[test]
    fn tests_and_borrowed_locks_do_not_count() {
        let code = "fn f(m: &Mutex<u8>) {}\n#[cfg(test)]\nmod tests {\n thread::spawn(f);\n}\n";
        assert_eq!(found(&[WORK, TABLE, ("engine/a/src/d.rs", code)]), [""; 0]);
    }
}
