use std::collections::HashSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::error::ConfigurationProblem;
use crate::mutation::{config, near_text};

const USER: &str = "/config.toml";
const WORKSPACE: &str = "/w/.turnpoint.toml";

fn user(text: &str) -> (Configuration, Vec<ConfigurationProblem>) {
    let mut configuration = Configuration::default();
    let problems = configuration.take_user(Path::new(USER), text.as_bytes());
    (configuration, problems)
}

/// What follows from the text of a workspace's file under that of a user, which is obeyed.
#[track_caller]
fn workspace(user_text: &str, text: &str) -> (Settings, Vec<String>) {
    let (mut configuration, problems) = user(user_text);
    assert_eq!(problems, []);
    let problems = configuration.take_workspace(Path::new(WORKSPACE), text.as_bytes());
    (configuration.settings(), problems.iter().map(ToString::to_string).collect())
}

/// A value of each setting that is not its default, as a user's file has it.
const OTHERS: &str = r#"
home = "~/store"
session = "s"
color = "never"
pager = ""
[capture]
file_limit = "1MiB"
total_limit = "2GiB"
cross_mounts = true
ignore_files = false
exclude = ["build/", "!dist/"]
secrets = ["*.token"]
[extras]
copy = [".env", "packages/a/cache/"]
symlink = ["node_modules"]
[retention]
keep = 100
keep_within = "7d"
keep_hourly = 24
keep_daily = 30
keep_weekly = 52
keep_first = true
automatic = false
[gc]
every = "none"
[store]
budget = "5GiB"
free_floor = "10GiB"
"#;

#[test]
fn each_setting_has_a_name_of_its_own_a_default_that_it_takes_and_an_effect() {
    let mut names = HashSet::new();
    let mut settings = Settings::default();
    let (others, problems) = user(OTHERS);
    assert_eq!(problems, []);
    for setting in SETTINGS {
        assert!(names.insert(setting.variable()), "{}", setting.name);
        assert!(setting.about.ends_with('.'), "{}", setting.name);
        (setting.set)(&mut settings, &(setting.default)());
        assert_eq!(settings, Settings::default(), "the default of {}", setting.name);
        let other = others.in_force().into_iter().find(|it| it.setting.name == setting.name);
        let other = other.unwrap();
        assert_eq!(other.given.len(), 1, "{} is in the text", setting.name);
        let mut changed = Settings::default();
        (setting.set)(&mut changed, &other.value);
        assert_ne!(changed, Settings::default(), "{} has an effect", setting.name);
    }
}

#[test]
fn what_is_not_understood_is_named_with_its_place_and_what_is_expected() {
    for (text, expected, hint) in [
        (
            "color = \"auto\"\ncapture.file_limt = 1",
            ":2:21: there is no setting `capture.file_limt`",
            "did you mean `capture.file_limit`?",
        ),
        ("exlude = []", ":1:10: there is no setting `exlude`", "did you mean `capture.exclude`?"),
        (
            "qqq = []",
            ":1:7: there is no setting `qqq`",
            "`turnpoint config list` shows all settings",
        ),
        (
            "[capture]\n  file_limit = true",
            ":2:16: `capture.file_limit` is true; a size from \"1KiB\" \
         to \"1TiB\" is expected",
            "give it a size from \"1KiB\" to \"1TiB\"",
        ),
        (
            "capture.file_limit = 1023",
            ":1:22: `capture.file_limit` is 1023; a size from \"1KiB\" to \
         \"1TiB\" is expected",
            "give it a size from \"1KiB\" to \"1TiB\"",
        ),
        (
            "capture.file_limit = -1",
            ":1:22: `capture.file_limit` is -1; a size from \"1KiB\" to \"1TiB\" \
         is expected",
            "give it a size from \"1KiB\" to \"1TiB\"",
        ),
        (
            "capture.cross_mounts = \"yes\"",
            ":1:24: `capture.cross_mounts` is \"yes\"; true or false is \
         expected",
            "give it true or false",
        ),
        (
            "capture.exclude = [\"a/b/c\"]",
            ":1:19: `capture.exclude` holds \"a/b/c\": it has more than \
         one `/`; a pattern is a name, or a directory's name and a name",
            "give it a list of at most 256 patterns",
        ),
        (
            "capture = 1",
            ":1:11: `capture` is a section of settings, not a setting",
            "`turnpoint config list` shows all settings",
        ),
        (
            "session = \"a/b\"",
            ":1:11: `session` is \"a/b\"; it holds `/`, which a session name cannot",
            "give it the name of a session",
        ),
        (
            "home = \"store\"",
            ":1:8: `home` is \"store\"; a directory, written from `/` or from `~/` on \
         is expected",
            "give it a directory, written from `/` or from `~/` on",
        ),
        (
            "color = \"red\"",
            ":1:9: `color` is \"red\"; \"auto\" or \"always\" or \"never\" is expected",
            "give it \"auto\" or \"always\" or \"never\"",
        ),
        (
            "\"capture.file_limit\" = 1",
            ":1:24: there is no setting `\"capture.file_limit\"`",
            "did you mean `capture.file_limit`?",
        ),
    ] {
        let (configuration, problems) = user(text);
        let [problem] = problems.as_slice() else { panic!("{text}: {problems:?}") };
        assert_eq!(problem.to_string(), format!("{USER}{expected}"), "{text}");
        assert_eq!(problem.hint, hint, "{text}");
        assert_eq!(configuration.settings(), Settings::default());
    }
    for (text, place) in [
        ("color = \"auto\"\ncolor = \"auto\"", ":2:1: "),
        ("<<<<<<< HEAD\n", ":1:9: "),
        ("a = [", ":1:6: "),
    ] {
        let (_, problems) = user(text);
        let shown = problems[0].to_string();
        assert!(shown.starts_with(&format!("{USER}{place}it is not TOML: ")), "{text}: {shown}");
    }
    let mut configuration = Configuration::default();
    let problems = configuration.take_user(Path::new(USER), b"color = \"auto\"\n# \xff");
    assert_eq!(problems[0].to_string(), format!("{USER}:2:3: it is not UTF-8"));
}

#[test]
fn sizes_and_times_are_exact_and_are_shown_as_they_can_be_written() {
    let size = |text: &str| {
        let (configuration, problems) = user(&format!("capture.total_limit = {text}"));
        problems.is_empty().then(|| configuration.settings().scope.total_limit_bytes)
    };
    for (text, bytes, shown) in [
        ("8388608", 8 << 20, "8MiB"),
        ("\"8MiB\"", 8 << 20, "8MiB"),
        ("\" 1.5 gib \"", 3 << 29, "1536MiB"),
        ("\"2 MB\"", 2_000_000, "2000000B"),
        ("1_048_577", (1 << 20) + 1, "1048577B"),
    ] {
        assert_eq!(size(text), Some(Some(bytes)), "{text}");
        assert_eq!(Value::Size(bytes).to_string(), shown);
        assert_eq!(size(&format!("\"{shown}\"")), Some(Some(bytes)), "{shown}");
    }
    assert_eq!(size("\"none\""), Some(None));
    for text in [
        "\"8 apples\"",
        "\"\"",
        "\"MiB\"",
        "\"-1MiB\"",
        "\"1.0000001MiB\"",
        "0x800000",
        "8e6",
        "\"99999999999999999999TiB\"",
        "\"1..5GiB\"",
    ] {
        assert_eq!(size(text), None, "{text}");
    }
}

#[test]
fn a_workspace_makes_less_be_captured_and_nothing_else() {
    let scope = |text: &str| {
        let (settings, problems) = workspace("", text);
        assert_eq!(problems, [""; 0], "{text}");
        settings.scope
    };
    assert_eq!(scope("capture.file_limit = \"1MiB\"").file_limit_bytes, 1 << 20);
    assert_eq!(scope("capture.total_limit = \"1GiB\"").total_limit_bytes, Some(1 << 30));
    let excluding =
        scope("capture.exclude = [\"build/\", \"*.iso\"]\ncapture.secrets = [\"*.token\"]");
    assert!(excluding.excludes_directory(b"", b"build") && !excluding.excludes_file(b"", b"build"));
    assert!(excluding.excludes_directory(b"", b"x.iso") && excluding.excludes_file(b"", b"x.ISO"));
    assert!(excluding.excludes_directory(b"", b"target"), "the defaults count as well");
    assert!(excluding.is_secret(b"", b"a.token") && excluding.is_secret(b"", b".env"));
    scope("capture.cross_mounts = false\ncapture.ignore_files = true");

    for (text, name) in [
        ("home = \"/elsewhere\"", "home"),
        ("session = \"of-another\"", "session"),
        ("pager = \"rm -rf /\"", "pager"),
        ("color = \"always\"", "color"),
        ("capture.file_limit = \"9MiB\"", "capture.file_limit"),
        ("capture.total_limit = \"none\"\ncapture.file_limit = \"8193KiB\"", "capture.file_limit"),
        ("capture.cross_mounts = true", "capture.cross_mounts"),
        ("retention.keep = 5", "retention.keep"),
        ("retention.keep = 5000", "retention.keep"),
        ("retention.automatic = false", "retention.automatic"),
        ("gc.every = \"none\"", "gc.every"),
        ("store.budget = \"1MiB\"", "store.budget"),
        ("store.free_floor = \"1TiB\"", "store.free_floor"),
        ("capture.ignore_files = false", "capture.ignore_files"),
        ("capture.exclude = [\"a\", \"!target/\"]", "capture.exclude"),
        ("capture.secrets = [\"!.env\"]", "capture.secrets"),
    ] {
        let mut configuration = Configuration::default();
        let problems = configuration.take_workspace(Path::new(WORKSPACE), text.as_bytes());
        let [problem] = problems.as_slice() else { panic!("{text}: {problems:?}") };
        assert!(problem.reason.starts_with(&format!("`{name}` ")), "{problem}");
        let way = format!(
            "only `{name}` in the user's file, or {}, may",
            Setting::named(name).unwrap().variable()
        );
        assert!(problem.hint.contains(&way), "{}", problem.hint);
        assert_eq!(configuration.settings(), Settings::default(), "{text}");
    }
}

#[test]
fn a_workspace_may_go_as_far_as_the_user_allows_and_the_rest_of_its_file_counts() {
    let text = "capture.file_limit = \"32MiB\"\ncapture.exclude = [\"build/\"]";
    let (settings, problems) = workspace("", text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(settings.scope.file_limit_bytes, limits::FILE_BYTES_DEFAULT);
    assert!(settings.scope.excludes_directory(b"", b"build"));
    let (settings, problems) = workspace("capture.file_limit = \"64MiB\"", text);
    assert_eq!((settings.scope.file_limit_bytes, problems.len()), (32 << 20, 0));
    // It cannot know that this user's limit is lower still.
    let own = "capture.file_limit = \"1MiB\"\ncapture.total_limit = \"1GiB\"";
    let asks = "capture.file_limit = \"4MiB\"\ncapture.total_limit = \"2GiB\"";
    let (settings, problems) = workspace(own, asks);
    assert_eq!((settings.scope.file_limit_bytes, problems.len()), (1 << 20, 0));
    assert_eq!(settings.scope.total_limit_bytes, Some(1 << 30));
    // The user has the last word about names too.
    let (settings, _) = workspace("capture.exclude = [\"!build/\"]", text);
    assert!(!settings.scope.excludes_directory(b"", b"build"));
}

#[test]
fn the_environment_has_the_last_word_and_lists_are_put_together() {
    let (mut configuration, _) = user("capture.file_limit = \"1MiB\"\ncapture.exclude = [\"u\"]");
    let set = |configuration: &mut Configuration, name, text| {
        configuration.take_variable(Setting::named(name).unwrap(), Some(text))
    };
    assert_eq!(set(&mut configuration, "capture.file_limit", "16MiB"), None);
    assert_eq!(set(&mut configuration, "capture.exclude", "[\"e\"]"), None);
    assert_eq!(set(&mut configuration, "capture.cross_mounts", "true"), None);
    let text = "capture.file_limit = \"2KiB\"\ncapture.exclude = [\"w\"]";
    assert_eq!(configuration.take_workspace(Path::new(WORKSPACE), text.as_bytes()), []);
    let settings = configuration.settings();
    assert_eq!(settings.scope.file_limit_bytes, 16 << 20);
    assert!(settings.scope.cross_mounts);
    let of =
        |name| configuration.in_force().into_iter().find(|it| it.setting.name == name).unwrap();
    let exclude = of("capture.exclude");
    assert_eq!(exclude.value.to_string(), "[\"w\", \"u\", \"e\"]");
    let places: Vec<String> = exclude.given.iter().map(|given| given.place.to_string()).collect();
    assert_eq!(
        places,
        [&format!("{WORKSPACE}:2:19"), &format!("{USER}:2:19"), "TURNPOINT_CAPTURE_EXCLUDE"]
    );
    assert_eq!(of("capture.file_limit").given[0].place.to_string(), "TURNPOINT_CAPTURE_FILE_LIMIT");

    for (name, text, reason) in [
        ("capture.file_limit", "lots", "is \"lots\"; a size from"),
        ("capture.cross_mounts", "1", "is \"1\"; true or false"),
        ("capture.exclude", "build/", "a list such as"),
        ("capture.exclude", "[1]", "holds 1; a pattern is a text"),
    ] {
        let problem = set(&mut configuration, name, text).unwrap();
        assert!(problem.reason.starts_with(reason), "{problem}");
    }
}

#[test]
fn what_is_brought_along_lies_below_the_workspace_and_is_for_the_user_to_say() {
    for (list, reason) in [
        ("[\"/etc\"]", "holds \"/etc\": it is absolute"),
        ("[\"a/../../b\"]", "holds \"a/../../b\": it has a `.` or `..` component"),
        ("[\"\"]", "holds \"\": it is the workspace itself"),
        ("[\"a//b\"]", "holds \"a//b\": it has an empty component"),
        (
            "[\"a/.GIT/hooks\"]",
            "holds \"a/.GIT/hooks\": it belongs to a version-control system, or to turnpoint",
        ),
        ("[\".turnpoint\"]", "holds \".turnpoint\": it belongs to"),
        ("[1]", "holds 1; a path is a text"),
        ("\"a\"", "is \"a\"; a list of at most 64 paths below the workspace is expected"),
    ] {
        for name in ["copy", "symlink"] {
            let (configuration, problems) = user(&format!("extras.{name} = {list}"));
            let expected = format!("`extras.{name}` {reason}");
            assert!(problems[0].reason.starts_with(&expected), "{}", problems[0]);
            assert_eq!(configuration.settings().extras, Extras::default());
        }
    }
    let (_, problems) = workspace("", "extras.symlink = [\"node_modules\"]");
    let told = "/w/.turnpoint.toml:1:18: `extras.symlink` is not for the file of a workspace";
    assert_eq!(problems, [told]);
    let (configuration, _) = user("extras.copy = [\"a/b/\", \".env\"]");
    let copied = configuration.settings().extras.copied;
    assert_eq!(copied.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a/b", ".env"]);
}

proptest! {
    #![proptest_config(config())]

    /// Whatever the file of a workspace holds: the rest is as it was, and not less is left out.
    #[test]
    fn no_file_of_a_workspace_does_harm(
        text in near_text(&[
            OTHERS,
            "[capture]\nfile_limit = \"1MiB\"\ntotal_limit = \"2MiB\"\nexclude = [\"a\", \"b/c/\"]\n",
            "capture.exclude = [\"!x\"]\ncapture.secrets = ['*.token', \"!*.pub\"]\n",
            "capture = {cross_mounts = true, ignore_files = false}\n",
        ]),
        name in near_text(&["target", ".env", "dist", "x", "a"]),
    ) {
        let mut configuration = Configuration::default();
        drop(configuration.take_workspace(Path::new(WORKSPACE), text.as_bytes()));
        let Settings { scope, home, session, color, pager, upkeep, extras } =
            configuration.settings();
        prop_assert_eq!((upkeep, extras), (Upkeep::default(), Extras::default()));
        let (default, name) = (ScopeSettings::default(), name.as_bytes());
        prop_assert_eq!((home, session, color, pager), (None, None, ColorChoice::Auto, None));
        prop_assert!(scope.file_limit_bytes <= default.file_limit_bytes);
        prop_assert!(!scope.cross_mounts && scope.obeys_ignore_files);
        prop_assert!(scope.is_secret(b"p", name) || !default.is_secret(b"p", name));
        prop_assert!(scope.excludes_file(b"p", name) || !default.excludes_file(b"p", name));
        prop_assert!(scope.excludes_directory(b"p", name) || !default.excludes_directory(b"p", name));
    }
}
