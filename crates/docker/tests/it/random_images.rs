//! Images with random users, volumes, files at mount points, environments and entrypoints: the build refuses each with a
//! reason, or its containers run.

use std::fs;

use aod_ports::container_runtime::SecretFile;
use aod_ports::container_runtime::{
    ContainerEvent, ContainerRuntime as _, ImageBuild, RuntimeError,
};
use aod_ports::secrets::SecretValue;
use fastrand::Rng;
use tokio::sync::mpsc;

use crate::fixture::{Fixture, files, finish};

/// Paths where containers get mounts, and paths near them.
const PLACES: [&str; 16] = [
    "tmp",
    "tmp/x",
    "run",
    "run/secrets",
    "workspace",
    "io",
    "io/output",
    "io/input.json",
    ".aod",
    ".aod/bin",
    ".aod/channel",
    "etc/hosts",
    "data",
    "data/sub",
    "srv",
    "proc",
];

const USERS: [&str; 10] = [
    "root",
    "app",
    "app:app",
    "1234",
    "1234:0",
    "0",
    "toor",
    "other",
    "app:other",
    "70000:70000",
];

const VARIABLES: [&str; 6] = ["PATH", "HOME", "LD_PRELOAD", "AOD_ATTEMPT", "X", "TMPDIR"];

const OTHERS: [&str; 4] = [
    "WORKDIR /",
    "WORKDIR /nowhere",
    "HEALTHCHECK CMD busybox false",
    "EXPOSE 80",
];

/// What the command of each image does: writes wherever a capsule may write.
const SCRIPT: &str = "set -e; for d in /tmp /workspace /io/output; do echo x > $d/written; done; \
    busybox cat /run/secrets/KEY /io/input.json; echo done";

/// The files of an image, and the instructions about its settings.
struct RandomImage {
    files: Vec<u8>,
    instructions: Vec<String>,
}

impl RandomImage {
    fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut files = tar::Builder::new(files_without_end());
        for _ in 0..rng.usize(0..4) {
            add_something(&mut files, &mut rng);
        }
        let mut instructions = Vec::new();
        for _ in 0..rng.usize(0..3) {
            let place = rng.choice(PLACES).expect("a place");
            let form = rng.choice(["/", "/./", "//", ""]).expect("a form");
            instructions.push(format!("VOLUME {form}{place}"));
        }
        if rng.bool() {
            let user = rng.choice(USERS).expect("a user");
            instructions.push(format!("USER {user}"));
        }
        let size = rng.choice([0, 1, 100, 40_000, 60_000]).expect("a size");
        let name = rng.choice(VARIABLES).expect("a name");
        instructions.push(format!("ENV {name}=\"{}\"", "x".repeat(size)));
        let labels = format!("LABEL dev.aod.run=run_x dev.aod.attempt={}", rng.u8(..));
        instructions.push(labels);
        instructions.push(rng.choice(OTHERS).expect("an instruction").to_owned());
        if rng.u8(..) > 10 {
            let command = format!("CMD [\"/bin/busybox\", \"sh\", \"-c\", \"{SCRIPT}\"]");
            instructions.push(command);
        }
        let files = files.into_inner().expect("a tar in memory takes all");
        Self {
            files,
            instructions,
        }
    }
}

/// The files of the test image, without the two empty blocks that end a tar.
fn files_without_end() -> Vec<u8> {
    let mut files = files();
    files.truncate(files.len() - 1_024);
    files
}

/// Adds a directory, a file or a link, with a random mode and owner.
fn add_something(files: &mut tar::Builder<Vec<u8>>, rng: &mut Rng) {
    let place = *rng.choice(&PLACES).expect("a place");
    let mut header = tar::Header::new_gnu();
    header.set_mode(
        *rng.choice(&[0, 0o500, 0o700, 0o755, 0o777, 0o1777, 0o4755])
            .expect("a mode"),
    );
    let owner = *rng.choice(&[0, 1234, 65_534]).expect("an owner");
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_size(0);
    let added = match rng.u8(0..4) {
        0 | 1 => {
            header.set_entry_type(tar::EntryType::Directory);
            files.append_data(&mut header, place, &[][..])
        }
        2 => {
            header.set_entry_type(tar::EntryType::Symlink);
            let target = rng.choice(&["/", "/data", "../..", "/nowhere", "tmp", "/.aod/bin"]);
            files.append_link(&mut header, place, target.expect("a target"))
        }
        _ => files.append_data(&mut header, place, &[][..]),
    };
    added.expect("a tar in memory takes all");
}

/// Builds the image of `seed`, and runs it unless the build refuses it. Returns whether it ran.
async fn try_image(fixture: &Fixture, seed: u64) -> bool {
    let image = RandomImage::of(seed);
    let shown = |line: &String| line.chars().take(120).collect::<String>();
    let dockerfile: Vec<_> = image.instructions.iter().map(shown).collect();
    let dockerfile = dockerfile.join("\n");
    let instructions: Vec<_> = image.instructions.iter().map(String::as_str).collect();
    let Ok(base) = fixture.image_of(&image.files, &instructions) else {
        return false;
    };
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let text = format!("FROM {base}\nLABEL dev.aod.cluster={}\n", fixture.cluster);
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "Dockerfile", text.as_bytes())
        .expect("a tar in memory takes all");
    let context = fixture.path(&format!("context-{seed}.tar"));
    fs::write(
        &context,
        tar.into_inner().expect("a tar in memory takes all"),
    )
    .expect("a file");
    let (progress, _lines) = mpsc::channel(1);
    let tag = format!("aod/{}:{seed}", fixture.cluster);
    let build = ImageBuild::new(context, "checked", &tag, progress);
    let built = match fixture.runtime.build_image(build).await {
        Ok(built) => built,
        Err(RuntimeError::BuildFailed { message, .. }) => {
            assert!(!message.is_empty(), "seed {seed}: {dockerfile}");
            return false;
        }
        Err(error) => panic!("seed {seed}: {error:?}\n{dockerfile}"),
    };
    let mut spec = fixture.spec(&built);
    spec.secrets.push(SecretFile {
        name: "KEY".into(),
        value: SecretValue::new("opensesame".into()),
    });
    let container = fixture.runtime.start(spec).await;
    let container =
        container.unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{dockerfile}"));
    let outcome = finish(container).await;
    let exited =
        matches!(&outcome.last, Some(ContainerEvent::Exited { exit, .. }) if exit.code == Some(0));
    assert!(
        exited && outcome.stdout.ends_with("done\n"),
        "seed {seed}: {outcome:?}\n{dockerfile}"
    );
    true
}

/// Tries the images of `count` seeds; both ends must occur.
async fn try_images(count: u64) {
    let fixture = Fixture::new().await;
    let mut ran = 0;
    for seed in 0..count {
        ran += u64::from(try_image(&fixture, seed).await);
    }
    assert!(0 < ran && ran < count, "{ran} of {count} images ran");
}

#[tokio::test]
async fn ten_random_images_run_or_are_refused() {
    try_images(10).await;
}

#[tokio::test]
async fn hundred_random_images_run_or_are_refused() {
    try_images(100).await;
}
