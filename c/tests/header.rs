//! The header is what the sources say: `UNSPOOL_WRITE_HEADER=1 cargo test -p unspool-c --test
//! header` (`make header`) writes it.

use std::path::Path;

/// The prefixes that stand for the name of an enumeration, which C has no need of.
const QUALIFIED: [&str; 3] = ["UNSPOOL_STATUS_", "UNSPOOL_DTYPE_", "UNSPOOL_ACTION_KIND_"];

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config =
        cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a file of settings");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in [
        "status",
        "array",
        "options",
        "spool",
        "checkpointer",
        "parts",
        "info",
        "stats",
        "schedule",
    ] {
        builder = builder.with_src(root.join("src").join(name).with_extension("rs"));
    }
    let mut bytes = Vec::new();
    builder.generate().expect("sources that can be read").write(&mut bytes);
    let text = String::from_utf8(bytes).expect("a text");
    QUALIFIED.iter().fold(text, |text, prefix| text.replace(prefix, "UNSPOOL_"))
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/unspool.h");
    let text = generated();
    if std::env::var_os("UNSPOOL_WRITE_HEADER").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == text, "include/unspool.h is not what the sources say: run `make header`");
}
