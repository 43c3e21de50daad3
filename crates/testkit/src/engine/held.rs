//! One container of the double that holds: its processes run the command of its image, which finds the process in
//! [`Inside::process`].

use std::collections::BTreeMap;

use aod_domain::run::Exit;
use aod_ports::container_runtime::{ContainerEvent, ProcessEvent, ProcessSpec};
use aod_services::program::Program;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};

use super::container::{Asked, EXIT_CODE_KILLED, Live, SIGNAL_TERMINATE, overdue};
use super::{Command, EXIT_CODE_GATE, End, Inside};

/// Source: POSIX `signal.h`.
const SIGNAL_KILL: i32 = 9;

/// An order for a container that holds.
#[derive(Debug)]
pub(super) enum Order {
    Start(ProcessSpec),
    End { number: u32, is_forced: bool },
    Finish,
}

/// What reaches a process.
struct Reach {
    asked: watch::Sender<Asked>,
    killed: watch::Sender<bool>,
}

/// The processes that run.
struct Held<'a> {
    live: &'a Live,
    command: &'a Command,
    events: &'a mpsc::UnboundedSender<ContainerEvent>,
    running: FuturesUnordered<BoxFuture<'static, (u32, Exit)>>,
    reach: BTreeMap<u32, Reach>,
    is_finishing: bool,
}

/// Starts processes until it is told to finish or to end, is killed, or its gate's lease expires.
pub(super) async fn run(
    live: &Live,
    command: &Command,
    events: &mpsc::UnboundedSender<ContainerEvent>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) -> End {
    let _ = events.send(ContainerEvent::Started);
    let (mut killed, mut asked) = (live.killed.subscribe(), live.asked.subscribe());
    let mut held = Held {
        live,
        command,
        events,
        running: FuturesUnordered::new(),
        reach: BTreeMap::new(),
        is_finishing: false,
    };
    let lost = |exit_code| End {
        event: ContainerEvent::Lost,
        exit_code,
    };
    let mut was_asked = false;
    loop {
        if held.is_finishing && held.running.is_empty() {
            return End {
                event: ContainerEvent::Exited {
                    exit: code(0),
                    out_of_memory: false,
                    asked_from_outside: live.asked.borrow().came_from_outside,
                },
                exit_code: 0,
            };
        }
        tokio::select! {
            biased;
            _ = killed.wait_for(|&killed| killed) => return lost(EXIT_CODE_KILLED),
            () = overdue(live.until.subscribe()) => return lost(EXIT_CODE_GATE),
            _ = asked.wait_for(|asked| asked.came), if !was_asked => {
                was_asked = true;
                held.is_finishing = true;
                held.reach.values().for_each(ask);
            }
            Some(order) = orders.recv() => held.obey(order),
            Some((number, exit)) = held.running.next() => held.ended(number, exit),
        }
    }
}

fn code(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
    }
}

fn ask(reach: &Reach) {
    reach.asked.send_modify(|asked| asked.came = true);
}

impl Held<'_> {
    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(_) if self.is_finishing => (),
            Order::Start(process) => self.start(process),
            Order::Finish => self.is_finishing = true,
            Order::End { number, is_forced } => match self.reach.get(&number) {
                Some(reach) if is_forced => drop(reach.killed.send_replace(true)),
                Some(reach) => ask(reach),
                None => (),
            },
        }
    }

    fn start(&mut self, process: ProcessSpec) {
        let number = process.number;
        let reach = Reach {
            asked: watch::Sender::default(),
            killed: watch::Sender::default(),
        };
        let (mut killed, mut asked) = (reach.killed.subscribe(), reach.asked.subscribe());
        let work = (self.command)(Inside {
            spec: self.live.spec.clone(),
            process: Some(process),
            events: self.events.clone(),
            asked: reach.asked.clone(),
        });
        let killed_by = |signal| Exit {
            code: None,
            signal: Some(signal),
        };
        self.running.push(Box::pin(async move {
            let processes = Program::default();
            let exit = tokio::select! {
                biased;
                _ = killed.wait_for(|&killed| killed) => killed_by(SIGNAL_KILL),
                _ = asked.wait_for(|asked| asked.came && !asked.is_trapped) => {
                    killed_by(SIGNAL_TERMINATE)
                }
                exit_code = processes.run(work) => code(exit_code),
            };
            processes.kill();
            (number, exit)
        }));
        self.reach.insert(number, reach);
    }

    fn ended(&mut self, number: u32, exit: Exit) {
        self.reach.remove(&number);
        let event = ProcessEvent::Exited {
            exit,
            out_of_memory: false,
            asked_from_outside: self.live.asked.borrow().came_from_outside,
        };
        let _ = self.events.send(ContainerEvent::Process(number, event));
    }
}
