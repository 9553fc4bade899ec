//! Round trips of every record, and the errors of the reader.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Line, ParseError, Reader, write_end, write_header, write_step};
use crate::command::{Command, Refusal, TransferKind};
use crate::config::{Config, LinkConfig, PolicyKind, TierConfig};
use crate::event::{Event, Failure, Kept, Size};
use crate::types::{CheckpointId, Nanos, Place, RequestId, TierId, TierKind, TransferId, Version};

/// A small generator (SplitMix64), so that a failing seed can be named.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Small numbers, large ones and the ends of the range, all of them often.
    fn number(&mut self) -> u64 {
        match self.bits() % 4 {
            0 => self.bits() % 10,
            1 => u64::MAX,
            _ => self.bits() >> (self.bits() % 64),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.bits() % from.len() as u64) as usize]
    }

    fn request(&mut self) -> RequestId {
        RequestId(self.number())
    }

    fn version(&mut self) -> Version {
        Version(self.number() as i64)
    }

    fn checkpoint(&mut self) -> CheckpointId {
        CheckpointId(self.number())
    }

    fn transfer(&mut self) -> TransferId {
        TransferId(self.number())
    }

    fn tier(&mut self) -> TierId {
        TierId(self.number() as u8)
    }

    fn place(&mut self) -> Place {
        Place { tier: self.tier(), offset: self.number() }
    }

    fn failure(&mut self) -> Failure {
        use Failure::{Corrupt, Io, Missing, NoSpace, Permanent};
        self.pick(&[NoSpace, Io, Corrupt, Missing, Permanent])
    }

    fn kept(&mut self) -> Option<Kept> {
        let kept = Kept { offset: self.number(), bytes: self.number() };
        self.pick(&[None, Some(kept)])
    }

    fn kind(&mut self) -> TierKind {
        self.pick(&[TierKind::Device, TierKind::Host, TierKind::Disk, TierKind::Remote])
    }

    fn event(&mut self) -> Event {
        match self.bits() % 27 {
            0 => Event::Save {
                request: self.request(),
                version: self.version(),
                bytes: self.number(),
                size: self.pick(&[Size::Exact, Size::AtMost]),
            },
            1 => Event::Saved { request: self.request(), kept: self.kept() },
            2 => Event::SaveAborted { request: self.request() },
            3 => Event::Restore { request: self.request(), version: self.version() },
            4 => Event::Restored { request: self.request() },
            5 => Event::RestoreAborted { request: self.request() },
            6 => Event::Withdraw { request: self.request() },
            7 => Event::Expect { version: self.version() },
            8 => Event::ForgetHints,
            9 => Event::StartPrefetch,
            10 => Event::HoldPrefetch,
            11 => Event::Discard { version: self.version() },
            12 => Event::Flush { request: self.request() },
            13 => Event::TransferDone { transfer: self.transfer(), took: Nanos(self.number()) },
            14 => Event::TransferFailed { transfer: self.transfer(), failure: self.failure() },
            15 => Event::TransferCancelled { transfer: self.transfer() },
            16 => Event::Deleted { checkpoint: self.checkpoint(), tier: self.tier() },
            17 => Event::Recover {
                checkpoint: self.checkpoint(),
                version: self.version(),
                bytes: self.number(),
                tier: self.tier(),
            },
            18 => Event::ExpectLast { version: self.version() },
            19 => Event::Prefer { version: self.version(), tier: self.tier() },
            20 => Event::SaveInFlight { request: self.request() },
            22 => Event::TierFailed { tier: self.tier() },
            21 => Event::Shrunk { tier: self.tier(), capacity: self.number() },
            24 => Event::TakenByNeed { tier: self.tier() },
            25 => Event::ExpectOnce { version: self.version() },
            23 => Event::Grown { tier: self.tier(), capacity: self.number() },
            _ => Event::Tick,
        }
    }

    fn refusal(&mut self) -> Refusal {
        match self.bits() % 8 {
            0 => Refusal::Duplicate,
            1 => Refusal::Unknown,
            2 => Refusal::Discarded,
            3 => Refusal::NotYetSaved,
            4 => Refusal::TooLarge { largest: self.number() },
            5 => Refusal::Full {
                tier: self.kind(),
                capacity: self.number(),
                used: self.number(),
                failure: Some(self.failure()).filter(|failure| *failure != Failure::Io),
            },
            6 => Refusal::Lost { failure: self.failure() },
            _ => Refusal::FlushFailed {
                version: self.version(),
                tier: self.kind(),
                failure: self.failure(),
            },
        }
    }

    fn command(&mut self) -> Command {
        let (request, checkpoint, place) = (self.request(), self.checkpoint(), self.place());
        match self.bits() % 8 {
            0 => Command::Grant { request, checkpoint, place },
            1 => Command::Serve { request, checkpoint, place },
            2 => Command::FlushDone { request },
            3 => Command::Refuse { request, refusal: self.refusal() },
            4 => Command::Transfer {
                transfer: self.transfer(),
                checkpoint,
                version: self.version(),
                bytes: self.number(),
                kind: self.pick(&[TransferKind::Flush, TransferKind::Prefetch]),
                from: place,
                to: self.place(),
            },
            5 => Command::Cancel { transfer: self.transfer() },
            6 => Command::Delete { checkpoint, tier: self.tier() },
            _ => Command::Evict { checkpoint, place },
        }
    }

    fn rate(&mut self) -> f64 {
        let odd = self.bits() as f64 * 1e-3;
        self.pick(&[0.0, f64::INFINITY, 5.5e10, f64::MIN_POSITIVE, odd])
    }

    fn config(&mut self) -> Config {
        use PolicyKind::{Belady, Fifo, Lru, Score};
        let tiers = self.bits() % 5;
        Config {
            tiers: (0..tiers).map(|_| self.tier_config()).collect(),
            links: (1..tiers).map(|_| self.link_config()).collect(),
            discard_after_restore: self.bits().is_multiple_of(2),
            durable: self.bits().is_multiple_of(2),
            policy: self.pick(&[Score, Lru, Fifo, Belady]),
            max_retries: self.number() as u32,
            retry_delay: Nanos(self.number()),
        }
    }

    fn tier_config(&mut self) -> TierConfig {
        TierConfig { kind: self.kind(), capacity: self.number(), alignment: self.number() }
    }

    fn link_config(&mut self) -> LinkConfig {
        LinkConfig {
            flush_rate: self.rate(),
            prefetch_rate: self.rate(),
            latency: Nanos(self.number()),
            max_in_flight_bytes: self.number(),
            max_in_flight: self.number() as u32,
        }
    }
}

/// A trace of `steps` random steps, and its lines.
fn random_trace(seed: u64, steps: usize) -> (Config, Vec<Line>, String) {
    let mut random = Random(seed);
    let config = random.config();
    let (mut text, mut lines, mut now) = (String::new(), Vec::new(), Nanos(0));
    write_header(&mut text, &config).unwrap();
    for _ in 0..steps {
        now = now.plus(Nanos(random.bits() % 1000));
        let event = random.event();
        let commands: Vec<Command> = (0..random.bits() % 4).map(|_| random.command()).collect();
        write_step(&mut text, now, &event, &commands).unwrap();
        lines.push(Line::Event { now, event });
        lines.extend(commands.into_iter().map(Line::Command));
    }
    write_end(&mut text).unwrap();
    lines.push(Line::End);
    (config, lines, text)
}

fn read_all(text: &str) -> Result<(Config, Vec<Line>), ParseError> {
    let (config, reader) = Reader::open(text)?;
    let lines: Result<Vec<_>, _> = reader.map(|line| line.map(|(_, line)| line)).collect();
    Ok((config, lines?))
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..500 {
        let (config, lines, text) = random_trace(seed, 40);
        let read = read_all(&text);
        assert_eq!(read, Ok((config, lines)), "seed {seed}");
    }
}

#[test]
fn a_trace_that_was_cut_anywhere_reads_as_a_prefix() {
    let (_, lines, text) = random_trace(7, 12);
    let (_, first_step) = text.split_at(text.find('@').unwrap());
    let header = text.len() - first_step.len();
    for end in header..text.len() {
        let (_, read) = read_all(&text[..end]).unwrap();
        assert_eq!(read, lines[..read.len()], "cut at byte {end}");
    }
}

#[test]
fn any_changed_word_is_an_error_or_another_trace() {
    let (config, lines, text) = random_trace(3, 12);
    for (at, byte) in text.bytes().enumerate() {
        let mut changed = text.clone().into_bytes();
        changed[at] = if byte == b'x' { b'y' } else { b'x' };
        let read = read_all(&String::from_utf8(changed).unwrap());
        assert_ne!(read, Ok((config.clone(), lines.clone())), "byte {at}");
    }
}

#[test]
fn the_text_is_the_documented_one() {
    let mut text = String::new();
    let event =
        Event::Save { request: RequestId(1), version: Version(-2), bytes: 300, size: Size::Exact };
    let refusal = Refusal::Full { tier: TierKind::Host, capacity: 9, used: 8, failure: None };
    let command = Command::Refuse { request: RequestId(1), refusal };
    write_step(&mut text, Nanos(5), &event, &[command]).unwrap();
    let expected = "@5 save request=1 version=-2 bytes=300\n\
                    > refuse request=1 refusal=full tier=host capacity=9 used=8 failure=none\n";
    assert_eq!(text, expected);
}

const HEADER: &str = "unspool-trace 1\n\
    # a line for people\n\
    settings policy=score discard_after_restore=false max_retries=3 retry_delay=10\n\
    tier kind=host capacity=4096 alignment=64\n";

fn error_of(text: &str) -> String {
    read_all(text).expect_err("the text is not a trace").to_string()
}

fn error_after_header(lines: &str) -> String {
    error_of(&alloc::format!("{HEADER}{lines}"))
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let cases = [
        ("@1 saved\n", 5, "request=<a number>, found nothing"),
        ("@1 saved request=07\n", 5, "request=<a number>, found \"request=07\""),
        ("@1 saved request=7 x=1\n", 5, "the end of the line, found \"x=1\""),
        ("@1 tock\n", 5, "the name of an event, found \"tock\""),
        ("> cancel transfer=1\n", 5, "an event before any command, found \"transfer=1\""),
        ("\n@9 tick\n@8 tick\n", 7, "a time that is not before that of the event above"),
        ("end\n@1 tick\n", 6, "nothing after \"end\", found \"tick\""),
        ("tick\n", 5, "\"@\" and a time, \">\" or \"end\", found \"tick\""),
    ];
    for (lines, line, message) in cases {
        let error = error_after_header(lines);
        let expected = alloc::format!("line {line} of the trace: expected {message}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn a_foreign_or_headless_text_is_refused() {
    assert!(error_of("").contains("expected \"unspool-trace 1\", found nothing"));
    assert!(error_of("unspool-trace 2\n").contains("found \"unspool-trace 2\""));
    let unset = error_of("unspool-trace 1\n@1 tick\n");
    assert!(unset.starts_with("line 2 of the trace: expected a line \"settings\""), "{unset}");
    assert!(error_of("unspool-trace 1\nsettings policy=best\n").contains("score, lru, fifo"));
}
