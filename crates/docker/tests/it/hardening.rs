//! View and rights of a capsule, from inside its container.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::fixture::{Fixture, docker, finish};

#[tokio::test]
async fn capsule_has_no_privileges_and_no_network() {
    let fixture = Fixture::new().await;
    let outcome = fixture
        .run_script(
            "busybox grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
            echo routes $(busybox tail -n +2 /proc/net/route | busybox wc -l)
            echo devices $(busybox tail -n +3 /proc/net/dev | busybox cut -d: -f1)
            busybox mknod /workspace/device b 8 0 2>&1
            busybox mount -t tmpfs none /tmp 2>&1
            busybox ping -c 1 127.0.0.1 2>&1 | busybox tail -n 1
            busybox ls /proc/1/root 2>&1
            echo hosts $(busybox cat /etc/hosts)
            ulimit -c; ulimit -f; ulimit -n",
        )
        .await;
    let lines: Vec<_> = outcome
        .stdout
        .lines()
        .map(|line| line.replace('\t', " "))
        .collect();
    assert_eq!(
        lines,
        [
            "CapPrm: 0000000000000000",
            "CapEff: 0000000000000000",
            "CapBnd: 0000000000000000",
            "NoNewPrivs: 1",
            "Seccomp: 2",
            "routes 0",
            "devices lo",
            "mknod: /workspace/device: Operation not permitted",
            "mount: permission denied (are you root?)",
            "ping: permission denied (are you root?)",
            "ls: /proc/1/root: Permission denied",
            "hosts 127.0.0.1 localhost capsule",
            "0",
            // Blocks of 512 bytes: 64 MiB.
            "131072",
            "16384",
        ],
        "{}",
        outcome.stderr
    );
}

#[tokio::test]
async fn capsule_can_write_only_to_its_own_directories() {
    let fixture = Fixture::new().await;
    let script = "for place in / /etc /bin /io/input /io/input.json /io/handoff/incoming \
         /.aod/channel /.aod/bin /.aod /dev /proc/sys/kernel /etc/hosts \
         /io /io/output /io/handoff/outgoing /workspace /tmp /dev/shm; do
            if [ -d $place ]; then file=$place/new; else file=$place; fi
            if echo x 2>/dev/null >$file; then echo yes $place; else echo no $place; fi
        done 2>/dev/null
        busybox mv /io/output /io/moved 2>/dev/null || echo kept
        echo '{\"done\":true}' > /io/output.new && busybox mv /io/output.new /io/output.json
        echo result > /io/output/result.txt
        busybox cat /io/input.json /io/input/given.txt";
    let spec = fixture.spec(&fixture.script(script));
    let io = spec.io.clone();
    let outcome = finish(fixture.start(spec).await).await;
    let no = "no / no /etc no /bin no /io/input no /io/input.json no /io/handoff/incoming \
        no /.aod/channel no /.aod/bin no /.aod no /dev no /proc/sys/kernel no /etc/hosts";
    let yes =
        "yes /io yes /io/output yes /io/handoff/outgoing yes /workspace yes /tmp yes /dev/shm";
    let said: Vec<_> = outcome.stdout.split_whitespace().collect();
    assert_eq!(
        said.join(" "),
        format!("{no} {yes} kept {{\"text\":\"hello\"}}given")
    );
    assert_eq!(
        fs::read_to_string(io.io.join("output.json")).expect("it was renamed"),
        "{\"done\":true}\n"
    );
    let result = io.outputs.join("result.txt");
    assert_eq!(
        fs::read_to_string(&result).expect("it was written"),
        "result\n"
    );
    assert_eq!(fs::metadata(&result).expect("it is there").uid(), 65_534);
    assert!(
        !io.channel.join("gate.sock").exists(),
        "the socket serves one connection only"
    );
}

#[tokio::test]
async fn temporary_directory_is_bounded_and_volumes_are_no_volumes_of_the_engine() {
    let fixture = Fixture::new().await;
    let image = fixture.image(&[
        "VOLUME /data",
        &crate::fixture::command(&[
            "/bin/sh",
            "-c",
            "busybox grep -E ' /tmp ' /proc/mounts; echo x > /data/x && echo written",
        ]),
    ]);
    let volumes_before = docker(&["volume", "ls", "-q"]);
    let container = fixture.start(fixture.spec(&image)).await;
    let name = container.name().to_owned();
    let outcome = finish(container).await;
    let mounts: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    let mount = mounts[0];
    assert!(mount.starts_with("tmpfs "), "{mount}");
    // A quarter of 256 MiB, in KiB.
    for option in ["nosuid", "nodev", "noexec", "size=65536k"] {
        assert!(mount.contains(option), "{option}: {mount}");
    }
    assert_eq!(mounts[1], "written");
    let inspected = docker(&["inspect", "-f", "{{range .Mounts}}{{.Type}} {{end}}", &name]);
    assert!(!inspected.contains("volume"), "{inspected}");
    let new: Vec<_> = docker(&["volume", "ls", "-q"])
        .lines()
        .filter(|volume| !volumes_before.contains(volume))
        .map(str::to_owned)
        .collect();
    let mounts = docker(&["inspect", "-f", "{{json .Mounts}}", &name]);
    assert!(
        new.iter().all(|volume| !mounts.contains(volume.as_str())),
        "{new:?}"
    );
}

#[tokio::test]
async fn engine_receives_all_limits() {
    let fixture = Fixture::new().await;
    let container = fixture.start(fixture.spec(&fixture.script("true"))).await;
    let format = "{{with .HostConfig}}{{.Memory}} {{.MemorySwap}} {{.NanoCpus}} {{.PidsLimit}} \
        {{.OomScoreAdj}} {{.IpcMode}} {{.AutoRemove}} {{.Privileged}} {{.LogConfig.Type}}{{end}} \
        {{.Config.NetworkDisabled}} {{len .HostConfig.MaskedPaths}}";
    let inspected = docker(&["inspect", "-f", format, container.name()]);
    let words: Vec<_> = inspected.split_whitespace().collect();
    let (masked, rest) = words.split_last().expect("words");
    assert_eq!(
        rest,
        [
            "268435456",
            "268435456",
            "1000000000",
            "64",
            "500",
            "private",
            "false",
            "false",
            "local",
            "true"
        ]
    );
    assert_ne!(*masked, "0");
    finish(container).await;
}
