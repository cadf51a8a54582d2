// SPDX-License-Identifier: MPL-2.0
//! trtpublish to RabbitMQ.

use super::*;
use crate::common::port::free_port;

fn has_rabbitmq() -> bool {
    let has_all =
        ["/usr/lib/python3/dist-packages/pika", brokers::RABBITMQ].iter().all(|path| Path::new(path).exists());
    if !has_all {
        println!("SKIP: rabbitmq-server or python3-pika is not installed.");
    }
    cfg!(feature = "amqp") && has_all
}

/// One server for all, which takes seconds of a processor to start.
#[test]
fn rabbitmq_gets_messages() {
    if !has_rabbitmq() {
        return;
    }
    let folder = scratch("publish-rabbitmq");
    // Longer ones are refused.
    let mut lines = "max_message_size = 300000".to_string();
    let encrypted = is_installed("openssl").then(|| {
        brokers::make_certificates(&folder);
        let (port, file) = (free_port(), |name: &str| folder.join(name).display().to_string());
        lines += &format!(
            "\nlisteners.ssl.default = 127.0.0.1:{port}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\n\
             ssl_options.keyfile = {}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true",
            file("ca.pem"),
            file("server.pem"),
            file("server.key")
        );
        port
    });
    let mut server = brokers::rabbitmq(&folder, &lines);
    messages_outlive_restarts(&mut server);
    long_messages_are_refused(&server);
    an_exchange_routes_messages(&server);
    if let Some(port) = encrypted {
        it_is_spoken_to_with_tls(&folder, port);
    }
}

fn messages_outlive_restarts(server: &mut brokers::Server) {
    let location = format!("amqp://localhost:{}/boxes", server.port);
    // Who reads from a queue makes it.
    let mut stream = Stream::new(&location, OFTEN);
    stream.push(1);
    let told = stream.told();
    assert!(told.contains("no queue 'boxes' in vhost '/'"), "{told}");
    let queue = brokers::rabbit_queue(server.port, "boxes", &[]);
    stream.push(99);
    assert_eq!(frames(&queue.take(100)), numbers(0..100));
    stream.wait_for("published", 100);

    // A queue that outlives restarts, and messages that do so as well.
    drop(queue);
    stream.push(50);
    stream.wait_for("published", 150);
    server.stop();
    until("it is noticed", || !stream.publish.property::<gst::Structure>("stats").get::<bool>("connected").unwrap());
    stream.push(50);
    server.start();
    stream.end();
    assert_eq!((stream.count("published"), stream.count("dropped")), (200, 0));
    let queue = brokers::rabbit_queue(server.port, "boxes", &[]);
    assert_eq!(frames(&queue.take(100)), numbers(100..200));
}

/// Longer than this server takes: such messages are refused, and others arrive.
fn long_messages_are_refused(server: &brokers::Server) {
    let location = format!("amqp://localhost:{}/boxes", server.port);
    let mut stream = Stream::new(&location, &format!("{OFTEN} source-id={}", "x".repeat(300 << 10)));
    stream.push(2);
    let told = stream.told();
    assert!(told.contains("refused by") && told.contains("message size"), "{told}");
    stream.wait_for("rejected", 2);
}

fn an_exchange_routes_messages(server: &brokers::Server) {
    let queue = brokers::rabbit_queue(server.port, "bound", &["--bind", "amq.topic", "cameras.*"]);
    let location = format!("amqp://localhost:{}/cameras.gate?exchange=amq.topic&persistent=false", server.port);
    // Longer than one frame of AMQP.
    let mut stream = Stream::new(&location, &format!("{OFTEN} source-id={}", "x".repeat(200 << 10)));
    stream.push(3);
    stream.end();
    assert_eq!(frames(&queue.take(3)), numbers(0..3));
    for (location, part) in [
        (location.replace("amq.topic", "nowhere"), "no exchange 'nowhere' in vhost '/'"),
        (format!("amqp://me:hunter2@localhost:{}/bound", server.port), "ACCESS_REFUSED"),
        (format!("amqp://localhost:{}/bound?vhost=other", server.port), "vhost other not found"),
    ] {
        let mut stream = Stream::new(&location, "flush-timeout=1");
        stream.push(1);
        let told = stream.told();
        assert!(told.contains(part) && !told.contains("hunter2"), "{told}");
    }
}

fn it_is_spoken_to_with_tls(folder: &Path, port: u16) {
    let file = |name: &str| folder.join(name).display().to_string();
    let queue = brokers::rabbit_queue(port, "encrypted", &["--tls", &folder.display().to_string()]);
    let certificates =
        format!("ca-file={} cert-file={} key-file={}", file("ca.pem"), file("client.pem"), file("client.key"));
    let mut stream = Stream::new(&format!("amqps://localhost:{port}/encrypted"), &certificates);
    stream.push(5);
    stream.end();
    assert_eq!(frames(&queue.take(5)), numbers(0..5));
}
