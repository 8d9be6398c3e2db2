//! Purges in the model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use turnpoint::id::SessionName;
use turnpoint::path::RelPath;
use turnpoint::{Error, PurgeRequest};

use super::super::PURGED;
use super::super::oracle::Then;
use super::super::truth;
use super::{SESSIONS, Thens, World};
use crate::support::fingerprint;

/// Whether a path is meant: at or below a name, or with such an ending at or above it.
fn is_meant(selected: &str, path: &Path) -> bool {
    match selected.strip_prefix('*') {
        Some(ending) => path
            .ancestors()
            .filter_map(Path::file_name)
            .any(|name| name.as_encoded_bytes().ends_with(ending.as_bytes())),
        None => path.starts_with(selected),
    }
}

/// The paths that lose their content.
fn purge_from(thens: &mut Thens, selected: &str) -> BTreeSet<PathBuf> {
    let mut purged = BTreeSet::new();
    for (path, then) in thens {
        if matches!(then, Then::Held(_)) && is_meant(selected, path) {
            *then = Then::Omitted("purged".to_owned());
            purged.insert(path.clone());
        }
    }
    purged
}

impl World {
    pub(super) fn purge(&mut self, session: Option<bool>, selected: usize) {
        let selected = PURGED[selected];
        let session = session.map(|session| SESSIONS[usize::from(session)]);
        let paths = vec![RelPath::new(selected).unwrap()];
        let mut request = PurgeRequest::new(self.root().to_owned(), paths);
        request.session = session.map(|name| SessionName::new(name).unwrap());
        let plan = match self.store.plan_purge(&request, &()) {
            Err(Error::NoCheckpoint { .. }) => {
                assert!(self.living.is_empty());
                return;
            }
            Err(Error::SessionNotFound { .. }) => {
                assert!(!self.living.keys().any(|id| Some(id.0.as_str()) == session));
                return;
            }
            plan => plan.unwrap(),
        };
        let tree = fingerprint::with_stamps(self.root());
        let outcome = self.store.purge(&request, &plan.id(), &()).unwrap();
        assert_eq!(fingerprint::with_stamps(self.root()), tree, "a workspace was touched");
        let mut touched = BTreeSet::new();
        for (id, checkpoint) in &mut self.living {
            if session.is_none_or(|session| id.0 == session) {
                let purged = purge_from(&mut checkpoint.thens, selected);
                let told = plan.checkpoints.iter().find(|it| super::id_of(&it.checkpoint) == *id);
                let told = told.map_or(0, |told| told.paths);
                // What a restore has left counts too.
                assert!(told >= purged.len() as u64, "{id:?}: {told} of {purged:?}");
                touched.extend(purged);
            }
        }
        let named: BTreeSet<PathBuf> =
            plan.paths.iter().map(|it| it.path.as_os().to_owned()).collect();
        assert!(touched.is_subset(&named), "{touched:?} {named:?}");
        assert!(named.iter().all(|path| is_meant(selected, path)), "{named:?}");
        if plan.is_empty() {
            assert_eq!((touched.len(), outcome.removed.blobs), (0, 0));
            return;
        }
        // A part of a base may be of any of them.
        let mut said = self.said.clone();
        for thens in &mut said {
            purge_from(thens, selected);
        }
        self.said.extend(said);
        // Those that restores have saved are of one session.
        if session.is_none_or(|session| session == SESSIONS[0]) {
            for restored in &mut self.restores {
                let paths = restored.before.keys().chain(restored.after.keys());
                restored.purged.extend(paths.filter(|path| is_meant(selected, path)).cloned());
            }
        }
        // What is purged is not in the newest checkpoint, though nothing has changed since.
        self.last = None;
        self.assert_list();
        let truth = self.check_truth();
        // Nothing waits for later.
        let loose = truth::blobs_on_disk(self.store.root());
        let loose = loose.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        let packs = truth::packs(self.store.root());
        let packed = packs.iter().flat_map(|pack| pack.frames.keys().cloned());
        for hash in loose.chain(packed) {
            assert!(truth.references.contains_key(&hash), "{hash} is there and nobody needs it");
        }
        if session.is_none() {
            self.plan_is_empty(&request);
        }
    }

    fn plan_is_empty(&self, request: &PurgeRequest) {
        let plan = self.store.plan_purge(request, &()).unwrap();
        assert!(plan.is_empty() && plan.purged_before > 0);
    }
}
