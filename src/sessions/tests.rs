//! Small files of a session that are not as they were written.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::mutation::{config, near, one_of};

/// A store with one session, in which nothing but that session is.
struct Scene {
    _place: tempfile::TempDir,
    sessions: Sessions,
    id: CheckpointId,
}

impl Scene {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let sessions = Sessions::new(&Layout::new(place.path()));
        let id = CheckpointId { session: "s".parse().unwrap(), seq: Seq::new(3).unwrap() };
        fs::create_dir_all(sessions.directory(&id.session)).unwrap();
        Self { _place: place, sessions, id }
    }

    fn pin(&self, text: &[u8]) -> Option<PinFile> {
        fs::write(self.sessions.pin_path(&self.id), text).unwrap();
        match self.sessions.read_pin(&self.id) {
            Ok(pin) => Some(pin),
            Err(Error::CheckpointUnreadable { checkpoint, .. }) if checkpoint == self.id => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn session_file(&self, text: &[u8]) -> Option<SessionFile> {
        fs::write(self.sessions.session_file_path(&self.id.session), text).unwrap();
        match self.sessions.read_session_file(&self.id.session) {
            Ok(file) => Some(file),
            Err(error) if error.is_damage() => None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

thread_local! {
    static SCENE: Scene = Scene::new();
}

fn pins() -> impl Strategy<Value = Vec<u8>> {
    one_of(&[
        r#"{"pinned":true,"label":"before the change","note":null}"#,
        r#"{"pinned":false,"label":null,"note":"\u00e9\n"}"#,
        r#"{"pinned":true,"label":null,"note":null}"#,
    ])
}

fn session_files() -> impl Strategy<Value = Vec<u8>> {
    one_of(&[
        r#"{"next_seq":17}"#,
        r#"{"next_seq":9007199254740992}"#,
        r#"{"next_seq":3,"title":"of another program","tags":["a",{"b":null}]}"#,
        "{}",
    ])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_in_the_place_of_a_pin_do_harm(text in near(pins())) {
        SCENE.with(|scene| {
            let Some(pin) = scene.pin(&text) else { return };
            assert_eq!(scene.pin(&serde_json::to_vec(&pin).unwrap()), Some(pin));
        });
    }

    /// Whatever is in it, a number is given out that is one, and above what it says.
    #[test]
    fn no_bytes_in_the_place_of_a_session_file_do_harm(text in near(session_files())) {
        SCENE.with(|scene| {
            let read = scene.session_file(&text);
            let next = scene.sessions.next_seq(&scene.id.session).unwrap();
            let highest_known = read.as_ref().map_or(0, |file| file.next_seq);
            assert_eq!(next, highest_known);
            assert!(next <= Seq::MAX.get() + 1, "{next}");
            let Some(file) = read else { return };
            let again = scene.session_file(&serde_json::to_vec(&file).unwrap()).unwrap();
            assert_eq!(again.next_seq, file.next_seq);
            assert!(again.other.keys().eq(file.other.keys()));
        });
    }
}

#[test]
fn pins_and_session_files_that_say_too_much_or_nothing_are_damage() {
    let scene = Scene::new();
    let pin = PinFile { pinned: true, label: None, note: Some("x".to_owned()) };
    assert_eq!(scene.pin(br#" {"pinned":true,"label":null,"note":"x"} "#), Some(pin));
    for bad in [
        &b""[..],
        b"null",
        b"[]",
        br#"{"label":null,"note":null}"#,
        br#"{"pinned":1,"label":null,"note":null}"#,
        br#"{"pinned":true,"pinned":false,"label":null,"note":null}"#,
        br#"{"pinned":true,"label":null,"note":null,"more":1}"#,
        b"{\"pinned\":true,\"label\":\"\xff\",\"note\":null}",
        &b"[".repeat(100_000),
    ] {
        assert_eq!(scene.pin(bad), None, "{}", String::from_utf8_lossy(bad));
    }
    let given = |text: &[u8]| scene.session_file(text).map(|file| file.next_seq);
    assert_eq!(given(b"{}"), Some(0));
    assert_eq!(given(br#"{"next_seq":9007199254740992}"#), Some(Seq::MAX.get() + 1));
    for bad in [
        &b""[..],
        b"null",
        b"[]",
        br#"{"next_seq":-1}"#,
        br#"{"next_seq":1,"next_seq":2}"#,
        br#"{"next_seq":null}"#,
        // No checkpoint can have had such a number, and none could follow.
        br#"{"next_seq":9007199254740993}"#,
        br#"{"next_seq":18446744073709551615}"#,
        &br#"{"more":"#.repeat(100_000),
    ] {
        assert_eq!(given(bad), None, "{}", String::from_utf8_lossy(bad));
    }
}
