//! Which directory is which workspace, and files that do not say so as they were written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::mutation::{config, near};

fn directory(inode: u64) -> DirectoryIdentity {
    DirectoryIdentity { device: 1, inode, birth_ns: Some(7) }
}

fn workspace(root: &str, inode: u64) -> Workspace {
    let id = WorkspaceId::random();
    Workspace {
        id,
        default_session: default_session(Path::new(root), id).unwrap(),
        roots: vec![root.into()],
        identity: directory(inode),
    }
}

#[test]
fn path_and_directory_decide_together() {
    let known = [workspace("/a", 1), workspace("/b", 2)];
    let [a, b] = [known[0].id, known[1].id];
    let decide = |path: &str, inode, exists: bool| {
        identify(&known, Path::new(path), directory(inode), |_| exists)
    };
    assert_eq!(decide("/a", 1, true), Identified::Known { id: a, change: None });
    assert_eq!(
        decide("/a", 9, true),
        Identified::Known { id: a, change: Some(Change::RootRecreated) }
    );
    assert_eq!(decide("/c", 2, true), Identified::Known { id: b, change: Some(Change::Moved) });
    assert_eq!(decide("/a", 2, true), Identified::Ambiguous { by_path: a, by_inode: b });
    assert_eq!(decide("/a", 2, false), Identified::Known { id: b, change: Some(Change::Moved) });
    assert_eq!(decide("/c", 9, true), Identified::New);
    // The same inode made at another time is another directory.
    let reborn = DirectoryIdentity { birth_ns: Some(8), ..directory(1) };
    assert_eq!(identify(&known, Path::new("/c"), reborn, |_| true), Identified::New);
}

#[test]
fn a_device_with_another_number_is_the_same_where_it_cannot_be_a_copy() {
    let known = [workspace("/a", 1), workspace("/b", 2)];
    let [a, b] = [known[0].id, known[1].id];
    let decide = |path: &str, inode, exists: bool| {
        let identity = DirectoryIdentity { device: 9, ..directory(inode) };
        identify(&known, Path::new(path), identity, |_| exists)
    };
    let remounted = Some(Change::Remounted);
    for exists in [true, false] {
        assert_eq!(decide("/a", 1, exists), Identified::Known { id: a, change: remounted });
    }
    assert_eq!(decide("/c", 2, false), Identified::Known { id: b, change: Some(Change::Moved) });
    assert_eq!(decide("/c", 2, true), Identified::New, "a snapshot of it");
    // That of one workspace at the place of another, whose own is where it was.
    let recreated = Some(Change::RootRecreated);
    assert_eq!(decide("/a", 2, true), Identified::Known { id: a, change: recreated });
    // The number that is remembered decides where it is found.
    let copy = Workspace {
        identity: DirectoryIdentity { device: 9, ..directory(1) },
        ..workspace("/c", 1)
    };
    let both = [known[0].clone(), copy];
    let here = identify(&both, Path::new("/c"), both[1].identity, |_| true);
    assert_eq!(here, Identified::Known { id: both[1].id, change: None });
}

#[test]
fn a_directory_is_known_by_its_inode_and_its_birth_and_else_by_its_device() {
    let identity = |device, inode, birth_ns| DirectoryIdentity { device, inode, birth_ns };
    let was = identity(1, 2, Some(3));
    assert!(was.is_one(was));
    assert!(was.is_one(identity(9, 2, Some(3))));
    for other in [identity(1, 9, Some(3)), identity(1, 2, Some(9)), identity(1, 2, None)] {
        assert!(!was.is_one(other), "{other:?}");
    }
    let unknown = identity(1, 2, None);
    assert!(unknown.is_one(unknown));
    assert!(!unknown.is_one(identity(9, 2, None)));
}

#[test]
fn a_default_session_is_a_valid_name_for_any_directory() {
    let id: WorkspaceId = "0123456789abcdef0123456789abcdef".parse().unwrap();
    for (path, name) in [
        ("/code/app", "app-01234567"),
        ("/code/my app", "my_app-01234567"),
        ("/", "workspace-01234567"),
        ("/code/.config", "config-01234567"),
        ("/code/con.x", "w-con.x-01234567"),
        ("/code/a:b*", "a_b_-01234567"),
    ] {
        assert_eq!(default_session(Path::new(path), id).unwrap().as_str(), name);
    }
    let long = format!("/{}", "\u{e9}".repeat(200));
    assert!(default_session(Path::new(&long), id).is_ok());
}

/// What the file of a workspace is read as.
fn read(text: &[u8], id: WorkspaceId) -> Option<Workspace> {
    let wire: WireWorkspace = serde_json::from_slice(text).ok()?;
    decode(wire, id).ok()
}

fn any_workspace() -> impl Strategy<Value = Workspace> {
    let identity = any::<(u64, u64, Option<i64>)>();
    let root = prop_oneof!["/\\PC{0,9}".prop_map(String::into_bytes), vec(any::<u8>(), 0..12)];
    (vec(root, 0..4), identity).prop_map(|(roots, (device, inode, birth_ns))| Workspace {
        id: WorkspaceId::from_bytes([7; 16]),
        default_session: "s".parse().unwrap(),
        roots: roots.iter().map(|root| PathBuf::from(std::ffi::OsStr::from_bytes(root))).collect(),
        identity: DirectoryIdentity { device, inode, birth_ns },
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_workspace_reads_as_it_was_written(workspace in any_workspace()) {
        let text = encode(&workspace).unwrap();
        prop_assert_eq!(read(&text, workspace.id), Some(workspace));
    }

    #[test]
    fn no_bytes_in_the_place_of_a_workspace_do_harm(
        text in near(any_workspace().prop_map(|workspace| encode(&workspace).unwrap())),
    ) {
        let id = WorkspaceId::from_bytes([7; 16]);
        if let Some(workspace) = read(&text, id) {
            prop_assert_eq!(workspace.id, id);
            let session = workspace.default_session.as_str();
            prop_assert!(!session.contains(['/', '\0']) && !session.starts_with('.'));
            prop_assert_eq!(read(&encode(&workspace).unwrap(), id), Some(workspace));
        }
    }
}

#[test]
fn a_file_that_is_of_another_workspace_or_says_a_thing_twice_is_refused() {
    let known = workspace("/a", 1);
    let text = String::from_utf8(encode(&known).unwrap()).unwrap();
    assert_eq!(read(text.as_bytes(), known.id), Some(known.clone()));
    assert_eq!(read(text.as_bytes(), WorkspaceId::random()), None);
    for (from, to) in [
        (r#""format":1"#, r#""format":2"#),
        (r#""format":1"#, r#""format":0"#),
        (r#""format":1"#, r#""format":1,"more":1"#),
        (r#""inode":1"#, r#""inode":1,"inode":1"#),
        (r#""inode":1"#, r#""inode":-1"#),
        (r#""path":"/a""#, r#""path":"/a","path_bytes":"L2E=""#),
        (r#""path":"/a""#, r#""path_bytes":"L2E=""#),
        (r#""path":"/a""#, ""),
        (r#""default_session":""#, r#""default_session":"../"#),
    ] {
        assert!(text.contains(from), "{from}");
        assert_eq!(read(text.replacen(from, to, 1).as_bytes(), known.id), None, "{from} {to}");
    }
    assert_eq!(read("[".repeat(100_000).as_bytes(), known.id), None);
}
