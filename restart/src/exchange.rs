//! Exchanges between ranks, each marked with its number and its call, so that ranks which do not do
//! the same are told so, and do not take one answer for another.

use std::sync::Mutex;
use std::time::Duration;

use unspool::{Error, ErrorKind};

use crate::ranks::{Ranks, Unanswered, named};
use crate::worker::lock;

/// What an exchange is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Ranks open their parts.
    Open,
    /// Ranks ask whether something is due.
    Due,
    /// Ranks save this step.
    Save(u64),
    /// Ranks ask for the latest checkpoint.
    Latest,
    /// Ranks tell what became of a restore.
    Outcome,
    /// Ranks end.
    Close,
    /// Ranks give parts to their partners.
    Partner,
}

impl Call {
    /// Its number in a message, and the step that it is about.
    fn code(self) -> (u8, u64) {
        match self {
            Call::Open => (0, 0),
            Call::Due => (1, 0),
            Call::Save(step) => (2, step),
            Call::Latest => (3, 0),
            Call::Outcome => (4, 0),
            Call::Close => (5, 0),
            Call::Partner => (6, 0),
        }
    }

    fn words(code: u8, step: u64) -> String {
        match code {
            0 => "opens its Checkpointer".into(),
            1 => "asks whether a checkpoint is due".into(),
            2 => format!("saves step {step}"),
            3 => "asks for the latest checkpoint".into(),
            4 => "restores a checkpoint".into(),
            6 => "gives a part to its partner".into(),
            _ => "closes its Checkpointer".into(),
        }
    }
}

/// The bytes before the payload: number of the exchange, call, step.
const HEAD: usize = 17;

/// The exchanges of a rank with all others, in one order on all of them.
#[derive(Debug, Default)]
pub struct Exchanges {
    state: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    done: u64,
    /// Why there will be no more of them: an answer that was late would be taken for the next one.
    broken: Option<String>,
}

impl Exchanges {
    /// Gives `payload` to all ranks and returns what they gave, by rank.
    ///
    /// # Errors
    /// `Timeout` when ranks do not answer, and for each later exchange; `Invalid` when they are at
    /// another one; `Io`.
    pub fn all(
        &self,
        ranks: &dyn Ranks,
        call: Call,
        payload: &[u8],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, Error> {
        if ranks.size() == 1 {
            return Ok(vec![payload.to_vec()]);
        }
        let gather = |mine: &[u8]| ranks.all_gather(mine, timeout);
        self.talk(call, payload, timeout, gather, |all, head| check(&all, ranks.size(), head, call))
    }

    /// Gives `payload` to the first rank of `pair`, and returns what the second one gave.
    pub(crate) fn pass(
        &self,
        ranks: &dyn Ranks,
        call: Call,
        payload: &[u8],
        (to, from): (u32, u32),
        timeout: Duration,
    ) -> Result<Vec<u8>, Error> {
        let pass = |mine: &[u8]| ranks.pass(mine, to, from, timeout);
        self.talk(call, payload, timeout, pass, |mut message, head| {
            check_head(from, &message, head, call)?;
            Ok(message.split_off(HEAD))
        })
    }

    /// An exchange of any kind, marked with its number and its call.
    fn talk<T, R>(
        &self,
        call: Call,
        payload: &[u8],
        timeout: Duration,
        how: impl FnOnce(&[u8]) -> Result<T, Unanswered>,
        check: impl FnOnce(T, &[u8]) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let number = self.begin()?;
        let (code, step) = call.code();
        let head = [&number.to_le_bytes()[..], &[code], &step.to_le_bytes()].concat();
        // No lock is held: this runs code of the application.
        let heard = how(&[&head, payload].concat());
        let checked = heard
            .map_err(|why| unanswered(&why, call, timeout))
            .and_then(|heard| check(heard, &head));
        checked.inspect_err(|error| lock(&self.state).broken = Some(error.message().to_owned()))
    }

    /// Whether exchanges still work.
    pub(crate) fn work(&self) -> bool {
        lock(&self.state).broken.is_none()
    }

    fn begin(&self) -> Result<u64, Error> {
        let mut state = lock(&self.state);
        if let Some(why) = &state.broken {
            let message = format!(
                "The ranks do not agree any more, since an earlier call: {why} Open the \
                 Checkpointer again on all of them."
            );
            return Err(Error::new(ErrorKind::Timeout, message));
        }
        state.done += 1;
        Ok(state.done)
    }
}

fn unanswered(why: &Unanswered, call: Call, timeout: Duration) -> Error {
    let (code, step) = call.code();
    let what = Call::words(code, step);
    match why {
        Unanswered::Late(ranks) => {
            let (verb, who) = (if ranks.len() > 1 { "have" } else { "has" }, named(ranks));
            let message = format!(
                "After {:.0} s {who} {verb} not answered, while this rank {what}. All ranks have \
                 to make the same calls in the same order; one that failed or hangs has to \
                 be ended with all others. What counted before still counts.",
                timeout.as_secs_f64()
            );
            Error::new(ErrorKind::Timeout, message)
        }
        Unanswered::Failed(why) => {
            let message = format!("The ranks could not talk, while this rank {what}: {why}");
            Error::new(ErrorKind::Io, message)
        }
    }
}

/// The payloads, when all ranks were at the same exchange.
fn check(all: &[Vec<u8>], size: u32, head: &[u8], call: Call) -> Result<Vec<Vec<u8>>, Error> {
    if all.len() != size as usize {
        let message = format!("{} ranks answered, of {size}.", all.len());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    for (rank, message) in (0..).zip(all) {
        check_head(rank, message, head, call)?;
    }
    Ok(all.iter().map(|message| message[HEAD..].to_vec()).collect())
}

/// Fine when a rank was at the same exchange.
fn check_head(rank: u32, message: &[u8], head: &[u8], call: Call) -> Result<(), Error> {
    if message.get(..HEAD) == Some(head) {
        return Ok(());
    }
    let (code, step) = call.code();
    let theirs = message.get(8..HEAD).map(|head| {
        let step = head[1..].try_into().map(u64::from_le_bytes).unwrap_or_default();
        Call::words(head[0], step)
    });
    let message = format!(
        "Rank {rank} {} where this rank {}: all ranks have to make the same calls in the same \
         order.",
        theirs.unwrap_or_else(|| "says something else".into()),
        Call::words(code, step)
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another rank that says this.
    struct Other(Result<Vec<u8>, Unanswered>);

    impl Ranks for Other {
        fn rank(&self) -> u32 {
            0
        }
        fn size(&self) -> u32 {
            2
        }
        fn all_gather(&self, mine: &[u8], _: Duration) -> Result<Vec<Vec<u8>>, Unanswered> {
            self.0.clone().map(|other| vec![mine.to_vec(), other])
        }
    }

    fn head(number: u64, code: u8, step: u64, payload: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &[code], &step.to_le_bytes(), payload].concat()
    }

    fn said(answer: Result<Vec<u8>, Unanswered>, call: Call) -> Result<Vec<Vec<u8>>, String> {
        let all = Exchanges::default().all(&Other(answer), call, b"mine", Duration::from_secs(9));
        all.map_err(|error| error.message().to_owned())
    }

    #[test]
    fn payloads_of_the_same_call_arrive() {
        let all = said(Ok(head(1, 2, 30, b"theirs")), Call::Save(30)).unwrap();
        assert_eq!(all, [b"mine".to_vec(), b"theirs".to_vec()]);
    }

    #[test]
    fn a_rank_at_another_call_is_told() {
        let told = said(Ok(head(1, 2, 40, b"")), Call::Save(30)).unwrap_err();
        assert!(told.contains("Rank 1 saves step 40 where this rank saves step 30"), "{told}");
        assert!(said(Ok(head(2, 3, 0, b"")), Call::Latest).unwrap_err().contains("Rank 1"));
        assert!(said(Ok(vec![]), Call::Latest).unwrap_err().contains("Rank 1"));
    }

    #[test]
    fn a_late_rank_is_named_and_later_exchanges_end_at_once() {
        let exchanges = Exchanges::default();
        let late = Other(Err(Unanswered::Late(vec![1])));
        let all = |ranks: &Other| exchanges.all(ranks, Call::Due, b"", Duration::from_secs(9));
        let told = all(&late).unwrap_err();
        assert!(told.message().contains("After 9 s rank 1 has not answered"), "{told}");
        assert_eq!(told.kind(), ErrorKind::Timeout);
        let again = all(&Other(Ok(head(2, 1, 0, b"")))).unwrap_err();
        assert!(again.message().contains("rank 1 has not"), "{again}");
        assert!(!exchanges.work());
    }
}
