//! `docs/reference/format.md` says what the code does.

use unspool_restart::{Manifest, Run};

#[test]
fn the_manifest_of_the_page_is_read_and_written_as_it_stands_there() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/format.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, after) = page.split_once("```text\nunspool-checkpoint").unwrap();
    let text = format!("unspool-checkpoint{}", after.split_once("```").unwrap().0);
    let manifest = Manifest {
        step: 300,
        rank: 3,
        ranks: 16,
        run: Run(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
        bytes: 800,
        milliseconds: 53,
        written: 1_795_401_488,
        increment: None,
        frame: None,
        values: "{\"values\":{\"time\":0.5,\"é\":1},\"random\":{}}".into(),
    };
    assert_eq!(text, String::from_utf8(manifest.render()).unwrap());
    assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest));
}
