//! Figures of records by the names that interfaces give them out under.

use std::time::Duration;

/// The value of a figure, by whose name interfaces give it out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Figure {
    /// A number of things, or of bytes.
    Count(u64),
    /// A time, whose name ends in `_seconds`.
    Seconds(Duration),
}

/// The figures of a record by the names that C and Python have for them: those of its counts, and
/// of its times with their unit.
macro_rules! figures {
    ($record:ident: $($count:ident)*; $($seconds:ident = $time:ident)*) => {
        impl $record {
            /// Its figures, each with the name that C and Python have for it.
            pub fn figures(
                &self,
            ) -> impl Iterator<Item = (&'static str, $crate::figure::Figure)> + use<> {
                let all = [
                    $((stringify!($count), $crate::figure::Figure::Count(self.$count.into())),)*
                    $((stringify!($seconds), $crate::figure::Figure::Seconds(self.$time)),)*
                ];
                all.into_iter()
            }
        }
    };
}
pub(crate) use figures;
