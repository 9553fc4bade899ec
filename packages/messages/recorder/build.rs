//! Writes the wrappers: for each row of the table of calls its forms in C, with counts of 32 and of
//! 64 bits, and in Fortran, with the endings that compilers give names and those of the module
//! `mpi_f08`: `_f08`, `_f08ts` where buffers are passed by descriptors, and `_c` before either
//! where counts have 64 bits (MPI 4.0, section 19.2).

#[allow(dead_code)]
#[path = "../src/calls.rs"]
mod calls;

use std::fmt::Write;

use calls::{CALLS, Call};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../src/calls.rs");
    // The symbols of the library are written to when it is loaded: no code may lie beside them. The
    // linker of zig, by which wheels are made, does not know the flag and always lays them out so.
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_default();
    if !linker.contains("zigcc") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-code");
    }
    let mut text = Wrappers::default();
    for (row, call) in CALLS.iter().enumerate() {
        write_c(&mut text, row, call);
        write_fortran(&mut text, row, call);
    }
    let Wrappers { functions, names } = text;
    let text = format!("{functions}pub(crate) static NAMES: &[&CStr] = &[{names}];\n");
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(format!("{folder}/wrappers.rs"), text).expect("the folder of the build");
}

/// The wrappers, and the list of their names.
#[derive(Default)]
struct Wrappers {
    functions: String,
    names: String,
}

fn write_c(text: &mut Wrappers, row: usize, call: &Call) {
    let count = call.args.len();
    wrap(text, &format!("MPI_{}", call.name), row, count, "C");
    if call.has_large_form() {
        wrap(text, &format!("MPI_{}_c", call.name), row, count, "Large");
    }
}

fn write_fortran(text: &mut Wrappers, row: usize, call: &Call) {
    if !call.has_fortran_form() {
        return;
    }
    let lower = format!("mpi_{}", call.name.to_lowercase());
    let count = call.fortran_arguments();
    let names = [lower.clone(), format!("{lower}_"), format!("{lower}__"), lower.to_uppercase()];
    for name in names {
        wrap(text, &name, row, count, "Fortran { module: Module::Mpi, is_large: false }");
    }
    for (width, is_large) in [("", false), ("_c", true)] {
        if is_large && !call.has_large_form() {
            continue;
        }
        let form = format!("Fortran {{ module: Module::F08, is_large: {is_large} }}");
        wrap(text, &format!("{lower}{width}_f08_"), row, count, &form);
        let buffers: Vec<usize> = call.buffers().collect();
        if !buffers.is_empty() {
            let form = format!("Fortran {{ module: Module::F08Arrays, is_large: {is_large} }}");
            let name = format!("{lower}{width}_f08ts_");
            wrap_arrays(text, &name, row, count, &form, &buffers);
        }
    }
}

fn wrap(text: &mut Wrappers, name: &str, row: usize, count: usize, form: &str) {
    wrap_arrays(text, name, row, count, form, &[]);
}

/// A wrapper whose arguments in the places of `arrays` are descriptors: they are passed on as they
/// are, and looked at by the addresses that they have.
fn wrap_arrays(
    text: &mut Wrappers,
    name: &str,
    row: usize,
    count: usize,
    form: &str,
    arrays: &[usize],
) {
    let list = |one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(", ");
    let params = list(&|n| format!("a{n}: usize"));
    let is_array = |n: &usize| arrays.contains(n);
    let words = list(&|n| if is_array(&n) { format!("address_of(a{n})") } else { format!("a{n}") });
    let passed = list(&|n| if is_array(&n) { format!("a{n}") } else { format!("w[{n}]") });
    let types = list(&|_| "usize".to_owned());
    write!(text.names, "c\"{name}\", ").expect("a text takes everything");
    write!(
        text.functions,
        "#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C\" fn {name}({params}) -> c_int {{\n\
             static REAL: Real = Real::new(c\"{name}\");\n\
             let real = |w: &[usize]| {{\n\
                 let place = REAL.get();\n\
                 if place.is_null() {{ return missing(REAL.name); }}\n\
                 let real: unsafe extern \"C\" fn({types}) -> c_int =\n\
                     unsafe {{ std::mem::transmute(place) }};\n\
                 unsafe {{ real({passed}) }}\n\
             }};\n\
             around(Form::{form}, {row}, &[{words}], &real)\n\
         }}\n"
    )
    .expect("a text takes everything");
}
