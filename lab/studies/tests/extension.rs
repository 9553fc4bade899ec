//! With a test that stands apart, cargo builds the extension beside the tests, from which
//! `make test` makes its wheel.

use std::fs;

#[test]
fn the_extension_is_beside_the_tests_and_has_its_initialiser() {
    let mut path = std::env::current_exe().unwrap();
    path.set_file_name("lib_native.so");
    let bytes = fs::read(&path).unwrap();
    let name = b"PyInit__native\0";
    assert!(bytes.windows(name.len()).any(|window| window == name));
}
