//! `make install` and `make uninstall` with what is built already, and the programs that pkg-config
//! and CMake build with what they installed. cargo is not called. pkg-config and CMake are left out
//! where they are not there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
// Names the library, so that it is built before this test.
use unspool_c as _;
use unspool_testkit::programs::{is_there, said, succeeded};

/// A build, of which all but the C library is replaced by the smallest that has its names, and a
/// prefix to install it in.
struct Installation {
    folder: TempDir,
}

impl Installation {
    fn new() -> Installation {
        let made = Installation { folder: tempfile::tempdir().expect("a folder") };
        let built = made.path("target/release");
        fs::create_dir_all(&built).expect("a folder");
        let test = std::env::current_exe().expect("the path of this test");
        symlink(test.with_file_name("libunspool_c.so"), built.join("libunspool_c.so"))
            .expect("a new name");
        made.write(
            "small.c",
            "int VELOC_Init_single(unsigned n, const char *s) { return s ? 0 : (int)n; }",
        );
        made.write("empty.c", "int main(void) { return 0; }");
        made.small("libveloc_client.so", &["-shared", "-Wl,-soname,libveloc-client.so", "small.c"]);
        made.small("libunspool_c.a", &["-c", "small.c"]);
        made.small("libunspool_recorder.so", &["-shared", "small.c"]);
        made.small("libunspool_pager.so", &["-shared", "small.c"]);
        made.small("unspool-messages", &["empty.c"]);
        made.small("unspool-paging", &["empty.c"]);
        made.write("target/release/THIRD-PARTY.txt", "licences");
        // Newer than all sources, as after a build.
        made.write("target/release/.installable", "");
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("its folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    /// Compiles what the build has of this name.
    fn small(&self, name: &str, words: &[&str]) {
        let mut command = Command::new("cc");
        command.current_dir(self.folder.path()).args(words).arg("-fPIC").arg("-o");
        command.arg(self.path("target/release").join(name));
        succeeded(command);
    }

    /// A target of the Makefile, which finds no cargo.
    fn make(&self, target: &str, variables: &[&str]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new("make");
        command.arg("--directory").arg(root).args([target, "CARGO=no-cargo"]);
        command.arg(format!("PREFIX={}", self.path("prefix").display())).args(variables);
        command.env("CARGO_TARGET_DIR", self.path("target"));
        for outer in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "LIBDIR", "DESTDIR"] {
            command.env_remove(outer);
        }
        command.output().expect("make can be started")
    }

    fn installed(libdir: &str) -> Installation {
        let made = Installation::new();
        let output = made.make("install", &[&format!("LIBDIR={libdir}")]);
        assert!(output.status.success(), "{}", said(&output));
        made
    }

    /// All files below the prefix.
    fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.path("prefix")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(self.path("prefix")).expect("a path below it");
                    found.insert(name.display().to_string());
                }
            }
        }
        found
    }

    /// What CMake says about a project with these lines.
    fn configured(&self, lines: &str, words: &[String]) -> Output {
        self.write(
            "project/CMakeLists.txt",
            &format!("cmake_minimum_required(VERSION 3.14)\nproject(program C)\n{lines}\n"),
        );
        let mut command = Command::new("cmake");
        command.arg("-S").arg(self.path("project")).arg("-B").arg(self.path("build")).args(words);
        command.arg(format!("-DCMAKE_PREFIX_PATH={}", self.path("prefix").display()));
        command.output().expect("CMake can be started")
    }
}

const PROGRAM: &str = "#include <unspool.h>\n#include \"include/veloc.h\"\n\
    int main(void) { return unspool_abi() != UNSPOOL_ABI || VELOC_Init_single(0, 0) != 0; }\n";

#[test]
fn libraries_and_what_finds_them_are_in_libdir_and_all_is_removed_again() {
    let made = Installation::installed("lib64");
    let files = made.files();
    for name in [
        "bin/unspool-paging",
        "include/veloc-gpu/veloc.h",
        "include/veloc.h",
        "lib64/cmake/unspool/unspool-config.cmake",
        "lib64/libunspool.a",
        "lib64/libunspool.so",
        "lib64/libveloc-client.so",
        "lib64/pkgconfig/unspool.pc",
        "libexec/unspool/libunspool_pager.so",
        "share/doc/unspool/LICENSE",
        "share/doc/unspool/THIRD-PARTY.txt",
        "share/veloc/cmake/velocConfig.cmake",
    ] {
        assert!(files.contains(name), "{name} is missing: {files:?}");
    }
    assert!(files.iter().all(|name| !name.starts_with("lib/")), "{files:?}");
    made.write("prefix/include/other.h", "");
    let output = made.make("uninstall", &["LIBDIR=lib64"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(made.files(), BTreeSet::from(["include/other.h".to_owned()]));
}

#[test]
fn a_package_is_staged_below_destdir() {
    let made = Installation::new();
    let stage = made.path("stage");
    let output = made.make("install", &[&format!("DESTDIR={}", stage.display())]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(made.files(), BTreeSet::new());
    let staged = format!("{}{}", stage.display(), made.path("prefix").display());
    let text = fs::read_to_string(format!("{staged}/lib/pkgconfig/unspool.pc")).expect("a file");
    let first = format!("prefix={}\nlibdir=${{prefix}}/lib\n", made.path("prefix").display());
    assert!(text.starts_with(&first), "{text}");
}

#[test]
fn what_cannot_be_installed_is_named_before_a_file_is_written() {
    let made = Installation::new();
    for (variable, words) in [
        ("PREFIX=here", "give an absolute path"),
        ("LIBDIR=/elsewhere/lib", "give a folder below"),
        ("LIBDIR=../lib", "give a folder below"),
    ] {
        let output = made.make("install", &[variable]);
        assert!(!output.status.success() && said(&output).contains(words), "{}", said(&output));
    }
    for name in ["libveloc_client.so", "unspool-paging"] {
        fs::remove_file(made.path("target/release").join(name)).expect("it was there");
    }
    let output = made.make("install", &[]);
    let text = said(&output);
    let named = text.contains(": libveloc_client.so unspool-paging. Build it before: make build-c");
    assert!(!output.status.success() && named, "{text}");
    assert_eq!(made.files(), BTreeSet::new());
}

#[test]
fn velocs_own_files_are_neither_written_over_nor_removed() {
    let made = Installation::new();
    let own =
        ["include/veloc.h", "lib64/libveloc-client.so", "share/veloc/cmake/velocConfig.cmake"];
    for name in own {
        made.write(&format!("prefix/{name}"), "VELOC's own");
    }
    for target in ["install", "uninstall"] {
        let output = made.make(target, &[]);
        let text = said(&output);
        assert!(output.status.success() && text.contains("VELOC itself is in"), "{text}");
        for name in own {
            let text = fs::read_to_string(made.path("prefix").join(name)).expect("a file");
            assert_eq!(text, "VELOC's own");
        }
    }
    assert_eq!(made.files(), own.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
#[allow(clippy::print_stdout)]
fn pkg_config_finds_the_libraries_in_libdir() {
    if !is_there("pkg-config") {
        return println!("skipped: no pkg-config");
    }
    let made = Installation::installed("lib/any-linux");
    let libdir = made.path("prefix/lib/any-linux");
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", libdir.join("pkgconfig"));
    command.args(["--cflags", "--libs", "unspool", "veloc-client"]);
    let flags = String::from_utf8(succeeded(command).stdout).expect("UTF-8");
    made.write("program.c", PROGRAM);
    let mut command = Command::new("cc");
    command.current_dir(made.folder.path()).args(["program.c", "-o", "program"]);
    command.args(flags.split_whitespace());
    succeeded(command);
    let mut program = Command::new(made.path("program"));
    program.env("LD_LIBRARY_PATH", libdir);
    succeeded(program);
}

#[test]
#[allow(clippy::print_stdout)]
fn cmake_finds_both_packages_and_their_libraries_run() {
    if !is_there("cmake") {
        return println!("skipped: no CMake");
    }
    for libdir in ["lib", "lib64"] {
        let made = Installation::installed(libdir);
        made.write("project/program.c", PROGRAM);
        let lines = "find_package(unspool 0.1 REQUIRED)\nfind_package(veloc 1.0 REQUIRED)\n\
            add_executable(program program.c)\n\
            target_link_libraries(program unspool::unspool veloc::client)";
        // CMake does not look into lib64 on Debian.
        let config = made.path("prefix").join(libdir).join("cmake/unspool");
        let output = made.configured(lines, &[format!("-Dunspool_DIR={}", config.display())]);
        assert!(output.status.success(), "{}", said(&output));
        let mut build = Command::new("cmake");
        build.arg("--build").arg(made.path("build"));
        succeeded(build);
        succeeded(Command::new(made.path("build/program")));
    }
}

#[test]
#[allow(clippy::print_stdout)]
fn cmake_refuses_versions_with_another_interface() {
    if !is_there("cmake") {
        return println!("skipped: no CMake");
    }
    let made = Installation::installed("lib");
    let asked = [
        ("unspool", "", true),
        ("unspool", "0.1", true),
        ("unspool", "0.1.0", true),
        ("unspool", "0.1.0;EXACT", true),
        ("unspool", "0.1.99", false),
        ("unspool", "0.0.9", false),
        ("unspool", "0.7", false),
        ("unspool", "0.10", false),
        ("unspool", "1.0", false),
        ("unspool", "0.1...0.3", true),
        ("unspool", "0.2...0.3", false),
        ("veloc", "1", true),
        ("veloc", "1.6", true),
        ("veloc", "2.0", false),
    ];
    let lines = asked.map(|(package, version, _)| {
        let words = version.replace(';', " ");
        format!(
            "unset({package}_DIR CACHE)\nfind_package({package} {words} QUIET)\n\
             if({package}_FOUND)\nmessage(STATUS \"{package} {version}: found\")\n\
             else()\nmessage(STATUS \"{package} {version}: refused\")\nendif()\n"
        )
    });
    let output = made.configured(&lines.concat(), &[]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for (package, version, found) in asked {
        let word = if found { "found" } else { "refused" };
        assert!(text.contains(&format!("-- {package} {version}: {word}\n")), "{version}: {text}");
    }
}
