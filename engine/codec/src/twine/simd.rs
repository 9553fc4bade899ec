//! Loops that are compiled for several generations of processors, one of which is chosen at run
//! time.

/// Functions whose bodies, and all that is `#[inline(always)]` in them, are compiled for the
/// instructions of every generation that `pulp` knows. They take the `Arch` before their own
/// arguments. A closure would not do: it might not be inlined.
macro_rules! vectorised {
    ($(
        $(#[$meta:meta])*
        fn $name:ident<$a:lifetime, $p:ident: $bound:ident>($($arg:ident: $type:ty),* $(,)?)
            -> $result:ty $body:block
    )*) => {$(
        $(#[$meta])*
        pub(super) fn $name<$a, $p: $bound>(arch: pulp::Arch, $($arg: $type),*) -> $result {
            struct Work<$a, $p: $bound> {
                $($arg: $type),*
            }

            impl<$a, $p: $bound> pulp::WithSimd for Work<$a, $p> {
                type Output = $result;

                #[inline(always)]
                fn with_simd<S: pulp::Simd>(self, _: S) -> $result {
                    let Work { $($arg),* } = self;
                    $body
                }
            }

            arch.dispatch(Work::<'_, $p> { $($arg),* })
        }
    )*};
}

pub(super) use vectorised;
