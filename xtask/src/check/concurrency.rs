//! Threads and locks are where ARCHITECTURE.md says: every file of a crate that starts a thread or
//! owns a lock is named in its section on threads and locks, and every file named there does so.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::tree::{File, Tree};

const PAGE: &str = "ARCHITECTURE.md";

/// One kind of thing that the page lists: the heading of its table, and how a line of code shows
/// one.
struct Listed {
    heading: &'static str,
    what: &'static str,
    shows: fn(&str) -> bool,
}

const THREADS: Listed =
    Listed { heading: "### Threads", what: "starts a thread", shows: starts_a_thread };
const LOCKS: Listed = Listed { heading: "### Locks", what: "owns a lock", shows: owns_a_lock };

/// Files that the page does not name, and names of files that do nothing of the kind.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return Vec::new() };
    [THREADS, LOCKS].iter().flat_map(|listed| compare(tree, &page.text, listed)).collect()
}

fn compare(tree: &Tree, page: &str, listed: &Listed) -> Vec<Finding> {
    let code: BTreeSet<&str> = tree
        .files
        .iter()
        .filter(|file| is_shipped(file) && shipped_lines(file).any(listed.shows))
        .map(|file| file.path.as_str())
        .collect();
    let named = named_below(page, listed.heading);
    let missing = code.iter().filter(|path| !named.contains(**path)).map(|path| {
        Finding::new(
            *path,
            1,
            format!("it {}, and {PAGE} does not say so", listed.what),
            "who reads the page must be able to rely on its being complete",
            "Add the file to the table, with what it is for, or do without",
        )
    });
    let stale = named.iter().filter(|path| !code.contains(path.as_str())).map(|path| {
        Finding::new(
            PAGE,
            1,
            format!("{path} is in the table below \"{}\"", listed.heading),
            "nothing in that file is of the kind",
            "Take it out of the table",
        )
    });
    missing.chain(stale).collect()
}

/// Where the crates are whose threads and locks the page lists.
const DISTRICTS: &[&str] =
    &["engine", "restart", "adjoint", "packages/messages/src", "packages/paging/src"];

/// Rust sources of the crates that users run; those of tests stand elsewhere or are called so.
fn is_shipped(file: &File) -> bool {
    let is_test = file.path.contains("/tests/")
        || file.path.ends_with("tests.rs")
        || file.path.ends_with("/interleavings.rs");
    file.is(&["rs"]) && DISTRICTS.iter().any(|folder| file.within(folder)) && !is_test
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
    let builds = line.contains("Builder::new()") && !line.contains("DirBuilder");
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
    use super::check;
    use crate::tree::Tree;

    const PAGE: &str = "### Threads\n\n| [work](engine/a/src/work.rs) | x |\n\n### Locks\n\n\
                        | [table](engine/a/src/table.rs) | x |\n\n## After\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let all: Vec<_> = files.iter().copied().chain([("ARCHITECTURE.md", PAGE)]).collect();
        check(&Tree::of(&all)).into_iter().map(|finding| finding.path).collect()
    }

    const WORK: (&str, &str) = ("engine/a/src/work.rs", "let t = thread::spawn(|| 1);\n");
    const TABLE: (&str, &str) = ("engine/a/src/table.rs", "struct T {\n    t: Mutex<u8>,\n}\n");

    #[test]
    fn what_the_page_names_is_accepted() {
        assert_eq!(found(&[WORK, TABLE]), [""; 0]);
    }

    #[test]
    fn a_thread_and_a_lock_that_the_page_does_not_name_are_found() {
        let thread = ("engine/a/src/b.rs", "Builder::new().name(n).spawn(f);\n");
        let lock = ("engine/a/src/c.rs", "static S: RwLock<u8> = RwLock::new(0);\n");
        assert_eq!(found(&[WORK, TABLE, thread, lock]), [thread.0, lock.0]);
    }

    #[test]
    fn a_row_about_nothing_is_found() {
        assert_eq!(found(&[WORK]), ["ARCHITECTURE.md"]);
    }

    #[test]
    fn tests_and_borrowed_locks_do_not_count() {
        let code = "fn f(m: &Mutex<u8>) {}\n#[cfg(test)]\nmod tests {\n thread::spawn(f);\n}\n";
        assert_eq!(found(&[WORK, TABLE, ("engine/a/src/d.rs", code)]), [""; 0]);
    }
}
