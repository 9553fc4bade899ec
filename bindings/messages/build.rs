//! Writes the wrappers: for each row of the table of calls its forms in C, with counts of 32 and of
//! 64 bits, and in Fortran, with the endings that compilers give names and those of the module
//! `mpi_f08`.

#[allow(dead_code)]
#[path = "../../crates/messages/src/calls.rs"]
mod calls;

use std::fmt::Write;

use calls::{CALLS, Call};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../crates/messages/src/calls.rs");
    let mut text = String::new();
    for (row, call) in CALLS.iter().enumerate() {
        write_c(&mut text, row, call);
        write_fortran(&mut text, row, call);
    }
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(format!("{folder}/wrappers.rs"), text).expect("the folder of the build");
}

fn write_c(text: &mut String, row: usize, call: &Call) {
    let count = call.args.len();
    wrap(text, &format!("MPI_{}", call.name), row, count, "C");
    if call.has_large_form() {
        wrap(text, &format!("MPI_{}_c", call.name), row, count, "Large");
    }
}

fn write_fortran(text: &mut String, row: usize, call: &Call) {
    if !call.has_fortran_form() {
        return;
    }
    let lower = format!("mpi_{}", call.name.to_lowercase());
    let count = call.fortran_arguments();
    let names = [lower.clone(), format!("{lower}_"), format!("{lower}__"), lower.to_uppercase()];
    for name in names {
        wrap(text, &name, row, count, "Fortran { is_08: false }");
    }
    wrap(text, &format!("{lower}_f08_"), row, count, "Fortran { is_08: true }");
}

fn wrap(text: &mut String, name: &str, row: usize, count: usize, form: &str) {
    let list = |one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(", ");
    let params = list(&|n| format!("a{n}: usize"));
    let words = list(&|n| format!("a{n}"));
    let passed = list(&|n| format!("w[{n}]"));
    let types = list(&|_| "usize".to_owned());
    write!(
        text,
        "#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C\" fn {name}({params}) -> c_int {{\n\
             static REAL: Real = Real::new(c\"{name}\");\n\
             let real = |w: &[usize]| {{\n\
                 let place = REAL.get();\n\
                 if place.is_null() {{ return missing(Form::{form}, {row}, w); }}\n\
                 let real: unsafe extern \"C\" fn({types}) -> c_int =\n\
                     unsafe {{ std::mem::transmute(place) }};\n\
                 unsafe {{ real({passed}) }}\n\
             }};\n\
             around(Form::{form}, {row}, &[{words}], &real)\n\
         }}\n"
    )
    .expect("a text takes everything");
}
