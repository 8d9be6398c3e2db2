//! A tree like a large repository of source code, and turns of edits as an agent makes them. The
//! same arguments give the same tree and the same edits, to the byte.
//!
//! In a tree of 100,000 files: 8,000 directories up to 10 deep, two of them with 2,000 files; sizes
//! log-normal with a median of 4 KB and a mean of 12 KB, 1 MB at most; text over a vocabulary of its
//! own, which compresses like code; 2 % incompressible, 1 % empty, 4 % duplicates of another file,
//! 1 % executable; ignore files at the root and in 2 % of the directories with something ignored
//! beside each; one symlink for every 2,000 files, one in ten dangling.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// `SplitMix64`: small, fast, and the same on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    /// A number from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are what an f64 holds")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn choose<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// `items` in another order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    /// One of `items`, as often as its weight says.
    fn weighted<T: Copy>(&mut self, items: &[(T, u32)]) -> T {
        let total: u32 = items.iter().map(|&(_, weight)| weight).sum();
        let mut at = self.below(total as usize);
        for &(item, weight) in items {
            if at < weight as usize {
                return item;
            }
            at -= weight as usize;
        }
        items[0].0
    }

    /// Log-normal with the given median.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size, bounded before it becomes an integer"
    )]
    fn size(&mut self, median: f64, sigma: f64) -> usize {
        let radius = (-2.0 * self.unit().max(1e-12).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        (median.ln() + sigma * normal).exp().clamp(1.0, 1_048_576.0) as usize
    }
}

const SYLLABLES: &[&str] = &[
    "ba", "be", "bi", "bo", "ca", "ce", "co", "cu", "da", "de", "di", "do", "fa", "fi", "fo", "ga",
    "go", "ha", "he", "ho", "in", "ka", "ki", "la", "le", "li", "lo", "ma", "me", "mi", "mo", "na",
    "ne", "no", "nu", "pa", "pe", "po", "qua", "ra", "re", "ri", "ro", "sa", "se", "si", "so",
    "ta", "te", "ti", "to", "va", "ve", "vi", "wa", "we", "xe", "ya", "zo", "ex", "un", "ar", "er",
    "or", "al", "el", "en", "on", "st", "tr", "ch", "sh", "th", "ph",
];
const KEYWORDS: &[&str] = &[
    "return ",
    "if (",
    "else ",
    "for (",
    "const ",
    "let ",
    "self.",
    "this.",
    "import ",
    "from ",
    "export ",
    "function ",
    "async ",
    "await ",
    "fn ",
    "pub ",
    "struct ",
    "class ",
    "def ",
    "None",
    "null",
    "true",
    "false",
    "Result<",
    "Option<",
    "String",
    "new ",
    "match ",
    "while (",
    "try {",
];
const PUNCTUATION: &[&str] = &[
    "(",
    ")",
    ", ",
    ".",
    ";\n    ",
    ";\n        ",
    ");\n    ",
    " {\n        ",
    "\n    }\n",
    "\n}\n\n",
    " = ",
    " == ",
    " => ",
    "[",
    "]",
    "\n",
    ": ",
    "_",
    "\"",
    "\", \"",
    "::",
    "->",
];
const HEADER: &str = "// Part of the example project. See the licence in the root directory.\n\
                      // Changes here are reviewed by the owners of the directory.\n\n";
const TOPS: &[&str] =
    &["packages", "services", "libs", "tools", "apps", "third_party", "docs", "infra"];
const COMMON: &[&str] = &[
    "src",
    "lib",
    "test",
    "tests",
    "components",
    "internal",
    "api",
    "hooks",
    "models",
    "handlers",
    "core",
    "cmd",
    "pkg",
    "examples",
    "fixtures",
];
const EXTENSIONS: &[(&str, u32)] = &[
    ("ts", 22),
    ("tsx", 8),
    ("rs", 14),
    ("py", 14),
    ("go", 12),
    ("java", 8),
    ("c", 4),
    ("h", 5),
    ("json", 6),
    ("md", 4),
    ("yaml", 3),
];
const BINARY_EXTENSIONS: &[&str] = &["png", "wasm", "woff2", "bin", "jpg", "pb"];
const ROOT_IGNORE: &str = "# build products\nnode_modules/\ntarget/\n/dist/\n*.log\n!keep.log\n*.tmp\n\
                           .env*\n**/__generated__/\ncoverage/**/raw\n*.[oa]\n";
/// A nested ignore file and the name of a file that it ignores.
const NESTED_IGNORES: &[(&str, &str)] = &[
    ("/out/\n*.cache\n", "a.cache"),
    ("*.snap\n!base.snap\n", "b.snap"),
    ("gen_*.txt\n/local.json\n", "gen_1.txt"),
    ("# nothing kept here\n*.bak\nscratch/\n", "x.bak"),
    ("*.tmp\n!ok.tmp\n", "y.tmp"),
];

const BUILD_FOLDERS: &[&str] =
    &["node_modules", "packages/node_modules", "target/debug", "libs/target"];

/// What tree to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// How many files, without ignore files and what they ignore.
    pub(crate) files: usize,
    /// The mean size.
    pub(crate) mean_bytes: u32,
    /// How many more files in build folders, which the ignore file at the root excludes.
    pub(crate) ignored: usize,
    pub(crate) seed: u64,
}

impl Shape {
    /// `files` files of 12 KB on average.
    pub(crate) fn of(files: usize) -> Self {
        Self { files, mean_bytes: 12_000, ignored: 0, seed: 1 }
    }
}

/// A tree that was made here and is edited here.
#[derive(Debug, Clone)]
pub(crate) struct Corpus {
    pub(crate) root: PathBuf,
    /// The regular files that nothing ignores, relative and sorted.
    pub(crate) files: BTreeSet<String>,
    /// The symlinks, relative and sorted.
    pub(crate) links: BTreeSet<String>,
    /// How many bytes the files had when they were made.
    pub(crate) bytes: u64,
    seed: u64,
}

/// One kind of edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Modify,
    /// Another content of the same size under the old modification time: only the change time, or
    /// reading it, can tell.
    ModifySilently,
    Add,
    Delete,
    Rename,
    Chmod,
    /// A file, link or directory becomes one of the other two.
    Swap,
}

/// How often an agent's edits are of each kind.
pub(crate) const AGENT: &[(Kind, u32)] =
    &[(Kind::Modify, 70), (Kind::Add, 15), (Kind::Delete, 8), (Kind::Rename, 7)];

/// Everything that can happen to a tree.
pub(crate) const EVERYTHING: &[(Kind, u32)] = &[
    (Kind::Modify, 40),
    (Kind::ModifySilently, 5),
    (Kind::Add, 15),
    (Kind::Delete, 10),
    (Kind::Rename, 10),
    (Kind::Chmod, 10),
    (Kind::Swap, 10),
];

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    Modify(String),
    ModifySilently(String),
    Add(String),
    Delete(String),
    Rename { from: String, to: String },
    Chmod { path: String, mode: u32 },
    Swap { path: String, from: What, to: What },
}

/// One side of a change of kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    File,
    Link,
    Dir,
}

impl Corpus {
    /// Makes the tree in `root`, which is new or empty.
    pub(crate) fn generate(root: &Path, shape: Shape) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        let mut maker = Maker::new(shape);
        let mut corpus = Self {
            root: root.to_owned(),
            files: BTreeSet::new(),
            links: BTreeSet::new(),
            bytes: 0,
            seed: shape.seed,
        };
        let directories = maker.directories((shape.files * 8 / 100).max(TOPS.len()));
        for directory in &directories {
            fs::create_dir(root.join(directory))?;
        }
        corpus.put_files(&mut maker, &directories)?;
        corpus.put_ignored(&mut maker, &directories)?;
        let listed: Vec<String> = corpus.files.iter().cloned().collect();
        for number in 0..(shape.files / 2000).max(1) {
            let path = format!("{}/link-{number}", maker.random.choose(&directories));
            let target = match number % 10 {
                9 => format!("nowhere-{number}"),
                _ => relative(&path, &maker.random.choose(&listed)),
            };
            symlink(target, root.join(&path))?;
            corpus.links.insert(path);
        }
        Ok(corpus)
    }

    fn put_files(&mut self, maker: &mut Maker, directories: &[String]) -> io::Result<()> {
        let mut recent: Vec<Vec<u8>> = Vec::new();
        for (number, directory) in maker.places(directories).into_iter().enumerate() {
            let random = &mut maker.random;
            let chance = random.unit();
            let binary = chance < 0.02;
            let extension =
                if binary { random.choose(BINARY_EXTENSIONS) } else { random.weighted(EXTENSIONS) };
            let mut path = format!("{directory}/{}.{extension}", random.choose(&maker.words));
            if self.files.contains(&path) {
                path = format!("{directory}/{}_{number}.{extension}", random.choose(&maker.words));
            }
            let content = if (0.02..0.03).contains(&chance) {
                Vec::new()
            } else if (0.03..0.07).contains(&chance) && !recent.is_empty() {
                random.choose(&recent)
            } else {
                let size = random.size(4000.0, maker.sigma);
                let content = if binary { noise(random, size) } else { maker.text(size) };
                if recent.len() < 400 {
                    recent.push(content.clone());
                }
                content
            };
            let mode = if maker.random.unit() < 0.01 { 0o755 } else { 0o644 };
            self.put(path, &content, mode)?;
        }
        Ok(())
    }

    fn put_ignored(&mut self, maker: &mut Maker, directories: &[String]) -> io::Result<()> {
        self.put(".gitignore".to_owned(), ROOT_IGNORE.as_bytes(), 0o644)?;
        self.put("keep.log".to_owned(), b"kept by a negated pattern\n", 0o644)?;
        let mut shuffled: Vec<&String> = directories.iter().collect();
        maker.random.shuffle(&mut shuffled);
        for directory in shuffled.iter().take((directories.len() / 50).max(1)) {
            let (rules, name) = maker.random.choose(NESTED_IGNORES);
            self.put(format!("{directory}/.gitignore"), rules.as_bytes(), 0o644)?;
            write_new(&self.root.join(format!("{directory}/{name}")), b"ignored\n", 0o644)?;
        }
        maker.random.shuffle(&mut shuffled);
        for (number, directory) in shuffled.iter().take((directories.len() / 40).max(1)).enumerate()
        {
            let path = self.root.join(format!("{directory}/debug-{number}.log"));
            write_new(&path, &b"line of a log\n".repeat(100), 0o644)?;
        }
        for number in 0..maker.shape.ignored {
            let home = self
                .root
                .join(BUILD_FOLDERS[number / 50 % BUILD_FOLDERS.len()])
                .join(format!("p{}", number / 50));
            fs::create_dir_all(&home)?;
            let size = maker.random.size(1500.0, 1.0) % 60_000;
            write_new(&home.join(format!("f{number}.js")), &maker.text(size), 0o644)?;
        }
        Ok(())
    }

    /// Takes an existing tree for one to edit: every regular file and symlink below `root`.
    pub(crate) fn adopt(root: &Path, seed: u64) -> io::Result<Self> {
        let mut corpus = Self {
            root: root.to_owned(),
            files: BTreeSet::new(),
            links: BTreeSet::new(),
            bytes: 0,
            seed,
        };
        corpus.adopt_below(root)?;
        Ok(corpus)
    }

    fn adopt_below(&mut self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            let Some(name) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) else {
                continue;
            };
            if metadata.is_dir() {
                self.adopt_below(&path)?;
            } else if metadata.is_symlink() {
                self.links.insert(name.to_owned());
            } else {
                self.bytes += metadata.len();
                self.files.insert(name.to_owned());
            }
        }
        Ok(())
    }

    fn put(&mut self, path: String, content: &[u8], mode: u32) -> io::Result<()> {
        write_new(&self.root.join(&path), content, mode)?;
        self.bytes += content.len() as u64;
        self.files.insert(path);
        Ok(())
    }

    /// Makes `count` edits of the given kinds and says which. Most of a turn's files lie close to
    /// each other; no path is edited twice.
    pub(crate) fn turn(
        &mut self,
        turn: u64,
        count: usize,
        kinds: &[(Kind, u32)],
    ) -> io::Result<Vec<Edit>> {
        let seed = self.seed.wrapping_mul(0x1000_0001).wrapping_add(turn);
        let mut editor = Editor {
            random: Random::new(seed.wrapping_mul(0x9e37_79b9)),
            listed: self.files.iter().cloned().collect(),
            touched: HashSet::new(),
            home: None,
            turn,
        };
        let mut edits = Vec::new();
        while edits.len() < count {
            let kind = editor.random.weighted(kinds);
            let path = editor.pick(self);
            let edit = self.edit(&mut editor, kind, path, edits.len())?;
            edits.extend(edit);
        }
        Ok(edits)
    }

    fn edit(
        &mut self,
        editor: &mut Editor,
        kind: Kind,
        path: String,
        number: usize,
    ) -> io::Result<Option<Edit>> {
        let full = self.root.join(&path);
        let tag = format!("t{}_{number}", editor.turn);
        editor.touched.insert(path.clone());
        Ok(Some(match kind {
            Kind::Modify => {
                let same_size = editor.random.unit() < 0.25;
                let content = changed(&mut editor.random, &fs::read(&full)?, &tag, same_size);
                fs::write(&full, content)?;
                Edit::Modify(path)
            }
            Kind::ModifySilently => {
                let before = fs::read(&full)?;
                if before.is_empty() {
                    return Ok(None);
                }
                let modified = full.metadata()?.modified()?;
                fs::write(&full, changed(&mut editor.random, &before, &tag, true))?;
                fs::File::options().write(true).open(&full)?.set_modified(modified)?;
                Edit::ModifySilently(path)
            }
            Kind::Add => {
                let new = beside(&path, "new", &tag);
                let content = changed(&mut editor.random, &fs::read(&full)?, &tag, false);
                write_new(&self.root.join(&new), &content, 0o644)?;
                self.appears(editor, new.clone());
                Edit::Add(new)
            }
            Kind::Delete => {
                fs::remove_file(&full)?;
                self.files.remove(&path);
                Edit::Delete(path)
            }
            Kind::Rename => {
                let to = beside(&path, "mv", &tag);
                fs::rename(&full, self.root.join(&to))?;
                self.files.remove(&path);
                self.appears(editor, to.clone());
                Edit::Rename { from: path, to }
            }
            Kind::Chmod => {
                let before = full.metadata()?.permissions().mode() & 0o7777;
                let mode = editor.random.choose(
                    &[0o600, 0o640, 0o700, 0o755]
                        .map(|mode| if mode == before { 0o644 } else { mode }),
                );
                fs::set_permissions(&full, fs::Permissions::from_mode(mode))?;
                Edit::Chmod { path, mode }
            }
            Kind::Swap => return self.swap(editor, path, &tag),
        }))
    }

    fn appears(&mut self, editor: &mut Editor, path: String) {
        editor.touched.insert(path.clone());
        self.files.insert(path);
    }

    /// Changes the kind of the file `path`, of a link, or of the directory that `path` lies in.
    fn swap(&mut self, editor: &mut Editor, path: String, tag: &str) -> io::Result<Option<Edit>> {
        let from = editor.random.choose(&[What::File, What::Link, What::Dir]);
        let others: &[What] = match from {
            What::File => &[What::Link, What::Dir],
            What::Link => &[What::File, What::Dir],
            What::Dir => &[What::File, What::Link],
        };
        let to = editor.random.choose(others);
        let path = match from {
            What::File => path,
            What::Link => {
                let free: Vec<_> =
                    self.links.iter().filter(|link| !editor.touched.contains(*link)).collect();
                if free.is_empty() {
                    return Ok(None);
                }
                editor.random.choose(&free).clone()
            }
            What::Dir => {
                let tries = (0..50).map(|_| editor.random.choose(&editor.listed));
                let candidates: Vec<String> = tries.collect();
                match candidates.iter().find_map(|path| self.small_directory(editor, path)) {
                    Some(directory) => directory,
                    None => return Ok(None),
                }
            }
        };
        let full = self.root.join(&path);
        if from == What::Dir {
            fs::remove_dir_all(&full)?;
        } else {
            fs::remove_file(&full)?;
        }
        let gone = |other: &String| {
            other == &path || other.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'))
        };
        self.files.retain(|other| !gone(other));
        self.links.retain(|other| !gone(other));
        editor.touched.insert(path.clone());
        match to {
            What::File => {
                write_new(&full, format!("was not a file before {tag}\n").as_bytes(), 0o644)?;
                self.files.insert(path.clone());
            }
            What::Link => {
                symlink(format!("{tag}-target"), &full)?;
                self.links.insert(path.clone());
            }
            What::Dir => {
                let inside = format!("{path}/{tag}.txt");
                fs::create_dir(&full)?;
                write_new(&self.root.join(&inside), tag.as_bytes(), 0o644)?;
                self.appears(editor, inside);
            }
        }
        Ok(Some(Edit::Swap { path, from, to }))
    }

    /// The directory of `path`, if it is not a top one, holds few files and nothing of this turn.
    fn small_directory(&self, editor: &Editor, path: &str) -> Option<String> {
        let (directory, _) = path.rsplit_once('/')?;
        let inside = format!("{directory}/");
        let below = self.files.range(inside.clone()..).take_while(|file| file.starts_with(&inside));
        let untouched = !editor.touched.iter().any(|touched| touched.starts_with(&inside));
        let fits = directory.contains('/') && untouched && (1..=12).contains(&below.count());
        fits.then(|| directory.to_owned())
    }
}

struct Editor {
    random: Random,
    /// The files at the start of the turn.
    listed: Vec<String>,
    touched: HashSet<String>,
    home: Option<usize>,
    turn: u64,
}

impl Editor {
    /// A file that is still there and was not edited in this turn, most often near the last one.
    fn pick(&mut self, corpus: &Corpus) -> String {
        loop {
            let at = match self.home {
                Some(home) if self.random.unit() >= 0.2 => {
                    (home + self.random.below(41)).saturating_sub(20).min(self.listed.len() - 1)
                }
                _ => *self.home.insert(self.random.below(self.listed.len())),
            };
            let path = &self.listed[at];
            let free = !self.touched.contains(path) && corpus.files.contains(path);
            if free && !path.ends_with(".gitignore") {
                return path.clone();
            }
            // A place where everything was edited already must not hold the turn up.
            if self.random.unit() < 0.1 {
                self.home = None;
            }
        }
    }
}

struct Maker {
    random: Random,
    words: Vec<String>,
    sigma: f64,
    shape: Shape,
}

impl Maker {
    fn new(shape: Shape) -> Self {
        let mut random = Random::new(shape.seed);
        let words = (0..20_000).map(|_| word(&mut random)).collect();
        // 3 % of the files are empty or tiny, so the rest carries a bit more.
        let sigma = (2.0 * (f64::from(shape.mean_bytes) * 1.04 / 4000.0).max(1.05).ln()).sqrt();
        Self { random, words, sigma, shape }
    }

    /// Relative directories, parents before children.
    fn directories(&mut self, count: usize) -> Vec<String> {
        let mut found: Vec<String> = TOPS.iter().map(|&top| top.to_owned()).collect();
        let mut seen: HashSet<String> = found.iter().cloned().collect();
        while found.len() < count {
            // Mostly under a recent directory: gives depth as well as breadth.
            let at = if self.random.unit() < 0.6 {
                self.random.below(found.len())
            } else {
                found.len().saturating_sub(1 + self.random.below(40))
            };
            if found[at].split('/').count() >= 10 {
                continue;
            }
            let name = if self.random.unit() < 0.35 {
                self.random.choose(COMMON).to_owned()
            } else {
                self.random.choose(&self.words).to_lowercase()
            };
            let path = format!("{}/{name}", found[at]);
            if seen.insert(path.clone()) {
                found.push(path);
            }
        }
        found
    }

    /// For each file its directory, sorted: a few giants, the rest skewed.
    fn places(&mut self, directories: &[String]) -> Vec<String> {
        let mut places = Vec::with_capacity(self.shape.files);
        if self.shape.files >= 10_000 {
            for _ in 0..(self.shape.files / 50_000).max(1) {
                let giant = self.random.choose(directories);
                places.extend(std::iter::repeat_n(giant, 2000));
            }
        }
        let mut sum = 0.0;
        let cumulative: Vec<f64> = directories
            .iter()
            .map(|_| {
                sum += self.random.unit().max(1e-9).powf(-1.0 / 1.3).min(60.0);
                sum
            })
            .collect();
        while places.len() < self.shape.files {
            let chance = self.random.unit() * sum;
            let at = cumulative.partition_point(|&up_to| up_to < chance);
            places.push(directories[at.min(directories.len() - 1)].clone());
        }
        places.sort();
        places
    }

    /// Text like source code, of exactly `size` bytes.
    fn text(&mut self, size: usize) -> Vec<u8> {
        if size == 0 {
            return Vec::new();
        }
        let words: Vec<usize> =
            (0..(14 + size / 220).min(400)).map(|_| self.random.below(self.words.len())).collect();
        let mut text = String::with_capacity(size + 64);
        if size > 900 && self.random.unit() < 0.6 {
            text.push_str(HEADER);
        }
        while text.len() < size {
            match self.random.below(10) {
                0..=1 => text.push_str(&self.words[words[self.random.below(words.len().min(10))]]),
                2..=3 => text.push_str(&self.words[words[self.random.below(words.len())]]),
                4 => text.push_str(self.random.choose(KEYWORDS)),
                // Lines come again with small variation, as in real code.
                5 if text.len() > 1500 => {
                    let line = self.random.below(text.len());
                    let end = text.as_bytes()[line..].iter().position(|&byte| byte == b'\n');
                    let again =
                        text.get(line..line + end.unwrap_or(0)).unwrap_or_default().to_owned();
                    text.push_str(&again);
                }
                _ => text.push_str(self.random.choose(PUNCTUATION)),
            }
        }
        let mut bytes = text.into_bytes();
        bytes.truncate(size);
        bytes[size - 1] = b'\n';
        bytes
    }
}

fn word(random: &mut Random) -> String {
    let mut word = String::new();
    for _ in 0..2 + random.below(3) {
        word.push_str(random.choose(SYLLABLES));
    }
    let tail = format!("{}{}", random.choose(SYLLABLES), random.choose(SYLLABLES));
    match random.below(10) {
        0..=2 => format!("{}{}", capital(&word), capital(&tail)),
        3..=4 => format!("{word}_{tail}"),
        _ => word,
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn noise(random: &mut Random, size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// `content` with a line more in the middle, or with a few bytes replaced. Never what it was.
fn changed(random: &mut Random, content: &[u8], tag: &str, same_size: bool) -> Vec<u8> {
    if content.is_empty() {
        return format!("// {tag}\n").into_bytes();
    }
    let at = random.below(content.len());
    let mut after = content.to_vec();
    if same_size {
        let length = tag.len().min(content.len());
        let at = at.min(content.len() - length);
        after[at..at + length].copy_from_slice(&tag.as_bytes()[..length]);
        if after == content {
            after[at] ^= 1;
        }
        return after;
    }
    let line_end = content[at..].iter().position(|&byte| byte == b'\n');
    let at = line_end.map_or(content.len(), |end| at + end + 1);
    after.splice(at..at, format!("    edited({tag});\n").into_bytes());
    after
}

/// A new name beside `path` with the same extension.
fn beside(path: &str, word: &str, tag: &str) -> String {
    match path.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') => {
            format!("{stem}_{word}{tag}.{extension}")
        }
        _ => format!("{path}_{word}{tag}"),
    }
}

/// The text of a link at `link` that leads to `target`, both relative to the same root.
fn relative(link: &str, target: &str) -> String {
    format!("{}{target}", "../".repeat(link.matches('/').count()))
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = fs::File::options().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(content)?;
    // Whatever the umask made of it.
    file.set_permissions(fs::Permissions::from_mode(mode))
}
