//! Frames: the decoder reads exactly the written messages, in any pieces.

use proptest::prelude::*;

use super::*;

fn hello() -> FromGate {
    FromGate::Hello(Hello {
        version: PROTOCOL_VERSION,
        pid: 1,
        listen: LISTEN_ADDRESS.parse().expect("an address"),
    })
}

fn go(argument: &str) -> ToGate {
    ToGate::Go(Go {
        holds: false,
        argv: vec!["/bin/sh".into(), argument.into()],
        env: vec![
            ("PATH".into(), "/bin".into()),
            ("EMPTY".into(), String::new()),
        ],
        lease_milliseconds: 18_000,
        secrets: Vec::new(),
    })
}

fn encoded<M: Message>(messages: &[M]) -> Vec<u8> {
    let mut frames = Vec::new();
    for message in messages {
        message
            .encode(&mut frames)
            .expect("a message within bounds");
    }
    frames
}

/// Reads a stream, `piece_bytes` at a time.
fn decode<M: Message>(stream: &[u8], piece_bytes: usize) -> Result<Vec<M>, DecodeError> {
    let mut decoder = Decoder::new();
    let mut messages = Vec::new();
    for piece in stream.chunks(piece_bytes) {
        decoder.push(piece);
        while let Some(message) = decoder.next_message()? {
            messages.push(message);
        }
    }
    decoder.finish()?;
    Ok(messages)
}

/// The frames are the contract: a change breaks a node and a gate of different builds.
#[test]
fn frames_are_these_bytes_on_the_wire() {
    let started = FromGate::Started(Started { pid: 2 });
    assert_eq!(encoded(&[started]), b"S\0\0\0\x09{\"pid\":2}");
    let output = FromGate::Stdout(vec![0, 255]);
    assert_eq!(encoded(&[output]), b"O\0\0\0\x02\0\xff");
    assert_eq!(
        encoded(&[FromGate::Stderr(Vec::new()), hello()]),
        b"E\0\0\0\0H\0\0\0\x2f{\"version\":3,\"pid\":1,\"listen\":\"127.0.0.1:8700\"}"
    );
    let exited = FromGate::Exited(Exited {
        code: Some(3),
        ..Exited::default()
    });
    assert_eq!(
        encoded(&[exited]),
        b"X\0\0\0\x25{\"code\":3,\"signal\":null,\"error\":null}"
    );
    assert_eq!(
        encoded(&[
            ToGate::Lease(Lease { milliseconds: 5 }),
            ToGate::Signal(Signal {
                signal: 15,
                process: None,
            }),
            ToGate::CountDeleted,
        ]),
        b"L\0\0\0\x12{\"milliseconds\":5}T\0\0\0\x0d{\"signal\":15}C\0\0\0\x02{}"
    );
    let output = FromGate::ProcessStderr(258, vec![0, 255]);
    assert_eq!(encoded(&[output]), b"e\0\0\0\x06\0\0\x01\x02\0\xff");
    let process = Process {
        number: 7,
        argv: vec!["id".into()],
        env: Vec::new(),
        stdin: None,
    };
    assert_eq!(
        encoded(&[ToGate::Process(process), ToGate::Finish]),
        b"P\0\0\0\x23{\"number\":7,\"argv\":[\"id\"],\"env\":[]}F\0\0\0\x02{}"
    );
    let deleted = FromGate::Deleted(Deleted { bytes: 4096 });
    assert_eq!(encoded(&[deleted]), b"D\0\0\0\x0e{\"bytes\":4096}");
    let ToGate::Go(short) = go("-c") else {
        unreachable!("it is a go")
    };
    assert_eq!(
        serde_json::to_string(&short).expect("JSON"),
        r#"{"argv":["/bin/sh","-c"],"env":[["PATH","/bin"],["EMPTY",""]],"lease_milliseconds":18000}"#
    );
}

#[test]
fn go_contains_secrets_and_debug_output_hides_them() {
    let ToGate::Go(mut with) = go("-c") else {
        unreachable!("it is a go")
    };
    with.secrets = vec![SecretFile {
        path: "/run/secrets/KEY".into(),
        value: "open\nsesame".into(),
    }];
    assert!(!format!("{with:?}").contains("sesame"));
    let text = serde_json::to_string(&with).expect("JSON");
    let expected = r#","secrets":[{"path":"/run/secrets/KEY","value":"open\nsesame"}]}"#;
    assert!(text.ends_with(expected), "{text}");
    // The message of a node of an earlier build has no secrets.
    let without = r#"{"argv":["/bin/sh","-c"],"env":[],"lease_milliseconds":1}"#;
    let read: Go = serde_json::from_str(without).expect("a go");
    assert_eq!(read.secrets, []);
}

#[test]
fn unknown_fields_are_ignored() {
    let frame = b"L\0\0\0\x1a{\"milliseconds\":5,\"new\":0}";
    let messages: Vec<ToGate> = decode(frame, 1).expect("a lease");
    assert_eq!(messages, [ToGate::Lease(Lease { milliseconds: 5 })]);
}

#[test]
fn unknown_kind_is_rejected_at_first_byte() {
    for kind in (0..=u8::MAX).filter(|kind| !b"HSOEDoexX".contains(kind)) {
        let error = decode::<FromGate>(&[kind], 1).expect_err("no such kind");
        assert!(matches!(error, DecodeError::UnknownKind { kind: named } if named == kind));
    }
    for kind in (0..=u8::MAX).filter(|kind| !b"GLTCPF".contains(kind)) {
        let error = decode::<ToGate>(&[kind], 1).expect_err("no such kind");
        assert!(matches!(error, DecodeError::UnknownKind { kind: named } if named == kind));
    }
}

#[test]
fn payload_above_maximum_is_rejected() {
    let largest = FromGate::Stdout(vec![7; PAYLOAD_SIZE_BYTES_MAX]);
    let stream = encoded(std::slice::from_ref(&largest));
    assert_eq!(
        decode::<FromGate>(&stream, 1000).expect("within bounds"),
        [largest]
    );

    let mut frames = b"before".to_vec();
    let above = FromGate::Stdout(vec![7; PAYLOAD_SIZE_BYTES_MAX + 1]);
    let error = above.encode(&mut frames).expect_err("above the bound");
    assert!(matches!(
        error,
        EncodeError::TooLarge {
            size_bytes: 65_537,
            size_bytes_max: 65_536
        }
    ));
    assert_eq!(frames, b"before");

    let error = go(&"x".repeat(ORDER_SIZE_BYTES_MAX)).encode(&mut frames);
    assert!(matches!(error, Err(EncodeError::TooLarge { .. })));
    assert_eq!(frames, b"before");
}

#[test]
fn length_above_maximum_is_rejected_before_payload() {
    let error = decode::<FromGate>(b"O\0\x01\0\x01", 1).expect_err("above the bound");
    assert!(matches!(
        error,
        DecodeError::TooLarge {
            size_bytes: 65_537,
            size_bytes_max: 65_536
        }
    ));
    let error = decode::<ToGate>(b"G\xff\xff\xff\xff", 5).expect_err("above the bound");
    assert!(matches!(
        error,
        DecodeError::TooLarge {
            size_bytes: 0xffff_ffff,
            size_bytes_max: 4_194_304
        }
    ));
}

#[test]
fn invalid_payload_is_rejected_repeatedly() {
    let mut decoder = Decoder::<ToGate>::new();
    decoder.push(b"T\0\0\0\x02{]");
    decoder.push(&encoded(&[ToGate::Signal(Signal {
        signal: 9,
        process: None,
    })]));
    for _ in 0..2 {
        let error = decoder.next_message().expect_err("not JSON");
        assert!(matches!(error, DecodeError::Malformed { kind: b'T', .. }));
    }
}

#[test]
fn end_within_frame_is_reported() {
    let stream = encoded(&[hello()]);
    for cut in 1..stream.len() {
        let error = decode::<FromGate>(&stream[..cut], 7).expect_err("cut short");
        assert!(matches!(error, DecodeError::Truncated { size_bytes } if size_bytes == cut));
    }
    assert_eq!(decode::<FromGate>(&[], 1).expect("an empty stream"), []);
}

#[test]
fn exit_codes_follow_the_shell() {
    let exited = |code, signal| {
        Exited {
            code,
            signal,
            ..Exited::default()
        }
        .exit_code()
    };
    assert_eq!(exited(Some(0), None), 0);
    assert_eq!(exited(Some(255), None), 255);
    assert_eq!(exited(None, Some(9)), 137);
    assert_eq!(exited(None, Some(64)), 192);
    assert_eq!(exited(None, None), EXIT_CODE_GATE_FAILED);
    assert_eq!(exited(Some(-1), None), EXIT_CODE_GATE_FAILED);
    assert_eq!(exited(None, Some(i32::MAX)), EXIT_CODE_GATE_FAILED);
}

fn any_from_gate() -> impl Strategy<Value = FromGate> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..2000);
    prop_oneof![
        Just(hello()),
        any::<i32>().prop_map(|pid| FromGate::Started(Started { pid })),
        bytes.clone().prop_map(FromGate::Stdout),
        bytes.clone().prop_map(FromGate::Stderr),
        (any::<u32>(), bytes.clone())
            .prop_map(|(number, bytes)| FromGate::ProcessStdout(number, bytes)),
        (any::<u32>(), bytes).prop_map(|(number, bytes)| FromGate::ProcessStderr(number, bytes)),
        (any::<u32>(), any::<Option<i32>>(), any::<Option<String>>()).prop_map(
            |(number, code, error)| {
                let exited = Exited {
                    code,
                    error,
                    ..Exited::default()
                };
                FromGate::ProcessExited(ProcessExited { number, exited })
            }
        ),
        any::<u64>().prop_map(|bytes| FromGate::Deleted(Deleted { bytes })),
        (
            any::<Option<i32>>(),
            any::<Option<i32>>(),
            any::<Option<String>>(),
            any::<bool>(),
            any::<bool>()
        )
            .prop_map(|(code, signal, error, out_of_memory, asked_from_outside)| {
                FromGate::Exited(Exited {
                    code,
                    signal,
                    error,
                    out_of_memory,
                    asked_from_outside,
                })
            }),
    ]
}

fn any_to_gate() -> impl Strategy<Value = ToGate> {
    let text = any::<String>;
    prop_oneof![
        (
            proptest::collection::vec(text(), 0..5),
            proptest::collection::vec((text(), text()), 0..5),
            any::<u64>(),
            proptest::collection::vec((text(), text()), 0..3),
            any::<bool>()
        )
            .prop_map(|(argv, env, lease_milliseconds, secrets, holds)| {
                let secrets = secrets.into_iter();
                ToGate::Go(Go {
                    holds,
                    argv,
                    env,
                    lease_milliseconds,
                    secrets: secrets
                        .map(|(path, value)| SecretFile { path, value })
                        .collect(),
                })
            }),
        any::<u64>().prop_map(|milliseconds| ToGate::Lease(Lease { milliseconds })),
        (any::<i32>(), any::<Option<u32>>())
            .prop_map(|(signal, process)| ToGate::Signal(Signal { signal, process })),
        Just(ToGate::CountDeleted),
        Just(ToGate::Finish),
        (
            any::<u32>(),
            proptest::collection::vec(text(), 0..5),
            proptest::collection::vec((text(), text()), 0..5),
            proptest::option::of(text()),
        )
            .prop_map(|(number, argv, env, stdin)| {
                ToGate::Process(Process {
                    number,
                    argv,
                    env,
                    stdin,
                })
            }),
    ]
}

proptest! {
    #[test]
    fn messages_of_gate_are_read_in_any_pieces(
        messages in proptest::collection::vec(any_from_gate(), 0..6),
        piece_bytes in 1..600_usize,
    ) {
        let read = decode::<FromGate>(&encoded(&messages), piece_bytes).expect("own frames");
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn messages_of_node_are_read_in_any_pieces(
        messages in proptest::collection::vec(any_to_gate(), 0..6),
        piece_bytes in 1..600_usize,
    ) {
        let read = decode::<ToGate>(&encoded(&messages), piece_bytes).expect("own frames");
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn result_for_any_bytes_is_the_same_in_any_pieces(
        stream in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(b'O')], 0..300),
        piece_bytes in 1..40_usize,
    ) {
        let whole = decode::<FromGate>(&stream, 300).map_err(|error| error.to_string());
        let pieces = decode::<FromGate>(&stream, piece_bytes).map_err(|error| error.to_string());
        prop_assert_eq!(whole, pieces);
    }
}
