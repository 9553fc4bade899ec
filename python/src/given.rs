//! Arguments of one simple type, each by its name: what PyO3 says of others is not an error of
//! ours.

use pyo3::prelude::*;

use crate::errors::{Class, error};

macro_rules! arguments {
    ($($name:ident $shown:literal: $kind:ty, $words:literal;)*) => {$(
        /// The argument that Python shows by this name.
        ///
        /// # Errors
        /// `OptionError` when it has another type.
        #[allow(clippy::needless_lifetimes, reason = "some of the types borrow")]
        pub fn $name<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<$kind> {
            value.extract().map_err(|_| {
                let message = format!("{}=...: {} is not {}.", $shown, value.get_type(), $words);
                error(value.py(), Class::Option, message)
            })
        }
    )*};
}

arguments! {
    learn "learn": bool, "True or False";
    verify "verify": bool, "True or False";
    shrink_ok "shrink_ok": bool, "True or False";
    overwrite "overwrite": bool, "True or False";
    donate "donate": bool, "True or False";
    once "once": bool, "True or False";
    timeout "timeout": f64, "a number of seconds";
    maybe_timeout "timeout": Option<f64>, "a number of seconds";
    share "share": f64, "a number such as 0.05";
    maybe_step "step": Option<u64>, "a step: a whole number that is not negative";
    place "device": &'a str, "a name such as \"cuda:0\"";
    to "to": &'a str, "the name of a library";
    device "device": Option<&'a str>, "a name such as \"cuda:0\"";
    maybe_to "to": Option<String>, "the name of a library";
}
