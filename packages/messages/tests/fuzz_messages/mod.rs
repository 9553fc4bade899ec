//! What holds for recorded messages of any bytes. The fuzz target `messages` and a test share it.

use unspool_codec::Checksum;
use unspool_messages::report::Report;
use unspool_messages::{Run, part, sample, show};

/// Reads these bytes in every way, and panics when an answer is not as it has to be.
pub fn check(bytes: &[u8]) -> bool {
    let (samples, left) = sample::read(bytes);
    assert!(left <= bytes.len() && samples.iter().all(|one| one.payload.len() <= bytes.len()));
    if let Err(why) = part::read(bytes) {
        assert!(!why.is_empty() && why.len() < 200, "{why}");
    }
    [run(bytes), run(&blocks(bytes))].into_iter().any(|accepted| accepted)
}

/// Whether these bytes are a run; one that is accepted makes a report.
fn run(bytes: &[u8]) -> bool {
    match Run::read(bytes) {
        Ok(run) => {
            let report = Report::of(&run, None);
            assert!(!show::text(&run, &report).is_empty());
            assert!(show::html(&run, &report).ends_with("</html>\n"));
            assert!(show::json(&run, &report).ends_with("}\n"));
            true
        }
        Err(why) => {
            assert!(why.to_string().ends_with('.'), "{why}");
            false
        }
    }
}

/// Blocks of a run with right checksums: the first byte of each is its kind, the second its length.
fn blocks(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = b"UNSPMSG\n\x02\0\0\0".to_vec();
    while let [kind, length, rest @ ..] = bytes {
        let (block, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        let mut head = u64::from(*kind % 8).to_le_bytes().to_vec();
        head.extend((block.len() as u64).to_le_bytes());
        let mut sum = Checksum::new();
        sum.update(&head);
        sum.update(block);
        head.extend(sum.value().to_le_bytes());
        all.extend(head);
        all.extend(block);
        bytes = rest;
    }
    all
}
