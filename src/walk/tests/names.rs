//! Names and depths that are legal and hard to hold.

use std::ffi::OsStr;

use super::*;

#[test]
fn every_name_that_a_directory_can_have_is_observed() {
    let case = Case::new();
    let names: [&[u8]; 10] = [
        b"\xff\xfe not utf-8",
        b"\x80",
        b"two\nlines",
        b"tab\tand \x1b[31m",
        b" leading and trailing ",
        b"-rf",
        b"...",
        b"\\",
        "\u{202e}".as_bytes(),
        &[b'n'; 255],
    ];
    for name in names {
        fs::create_dir(case.path.join(OsStr::from_bytes(name))).unwrap();
        fs::write(case.path.join(OsStr::from_bytes(name)).join("in"), "").unwrap();
    }
    let walked = case.walk();
    for name in names {
        let directory = RelPath::new(name).unwrap();
        assert!(walked.is_in_scope(&directory), "{directory}");
        assert!(walked.is_in_scope(&directory.join(b"in").unwrap()), "{directory}/in");
    }
    assert_eq!(walked.observations.len(), 1 + 2 * names.len());
}

#[test]
fn names_that_differ_only_in_case_are_two() {
    let case = Case::new();
    case.write_all(&["readme", "README", "Dir/x", "dir/x"]);
    assert_lines(
        &case.walk(),
        &["dir Dir", "file Dir/x", "file README", "dir dir", "file dir/x", "file readme"],
    );
}

#[test]
fn forty_levels_are_nothing_special() {
    let case = Case::new();
    let below = ["level"; 40].join("/");
    case.write(&format!("{below}/x"), "");
    let walked = case.walk();
    assert_eq!(what(&walked, &format!("{below}/x")), &What::File);
    assert_eq!(walked.observations.len(), 42);
    assert_eq!(walked.unfinished, []);
}

#[test]
fn what_lies_beyond_the_kernels_longest_path_is_reached_by_handles() {
    let case = Case::new();
    let name = [b'd'; 250];
    let bottom = deep(&case.path, &name, 20);
    drop(bottom.create_file(b"file").unwrap());
    drop(bottom.create_file(b"x.o").unwrap());
    bottom.symlink(b"target", b"link").unwrap();
    case.write(".gitignore", "*.o\n");
    let mut walked = case.walk();
    let deepest = [&name[..]; 20].join(&b"/"[..]);
    let at = |name: &str| RelPath::new([&deepest, &b"/"[..], name.as_bytes()].concat()).unwrap();
    assert!(at("file").as_bytes().len() > 4096);
    assert!(walked.is_in_scope(&at("file")) && walked.is_in_scope(&at("link")));
    assert_eq!(walked.find(&at("x.o")).unwrap().what, omitted(OmitReason::Ignored));
    assert_eq!(walked.observations.len(), 1 + 1 + 20 + 3);
    assert_eq!(walked.unfinished, []);
    assert_eq!(walked.force(&[at("x.o")], &()).unwrap(), [Forced::Held]);
    remove_deep(&case.path.join(OsStr::from_bytes(&name)));
}

#[test]
fn a_directory_beyond_the_deepest_level_is_observed_and_not_entered() {
    let case = Case::new();
    let bottom = deep(&case.path, b"d", limits::DEPTH_MAX + 2);
    drop(bottom.create_file(b"lost").unwrap());
    let walked = case.walk();
    let deepest = walked.observations.last().unwrap();
    assert_eq!(deepest.path.components().count(), limits::DEPTH_MAX);
    assert_eq!(deepest.what, What::Dir { listed: Listed::Partial });
    assert_eq!(walked.unfinished, std::slice::from_ref(&deepest.path));
    assert_eq!(walked.observations.len(), 1 + limits::DEPTH_MAX);
    remove_deep(&case.path.join("d"));
}

#[test]
fn a_path_beyond_the_longest_leaves_its_directory_partial() {
    let case = Case::new();
    let name = [b'd'; 255];
    let levels = limits::PATH_BYTES_MAX / 256;
    let bottom = deep(&case.path, &name, levels);
    drop(bottom.create_file(b"x").unwrap());
    let walked = case.walk();
    let deepest = walked.observations.last().unwrap();
    assert_eq!(deepest.path.components().count(), levels);
    assert_eq!(deepest.what, What::Dir { listed: Listed::Partial });
    assert_eq!(walked.unfinished, std::slice::from_ref(&deepest.path));
    remove_deep(&case.path.join(OsStr::from_bytes(&name)));
}
