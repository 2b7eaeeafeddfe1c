package artimon;

import artimon.bookkeeper.Bookkeeper;
import artimon.bookkeeper.Endpoint;
import java.io.IOException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketException;
import java.nio.ByteBuffer;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Makes the variables of a process pollable: instance, server, registration. Nothing here throws into the application. */
final class Pollable {
    private static final long RETRY_MS = 30_000;
    private static final long LAST_POLL_MS = 5_000;
    private static final long REGISTER_MS = 1_000;
    private static final long FOUND_MS = 2_000;
    private static final Logger LOG = Logger.getLogger("artimon.bookkeeper");

    private final Variables variables;
    private final Settings settings;
    private final UUID uuid = UUID.randomUUID();
    private final long begun = System.nanoTime();
    private final Thread thread = FramedServer.daemon("artimon-bookkeeper", this::run);
    volatile Instance instance; // kept: its lock would go with it, at the next garbage collection
    private volatile boolean closing;
    private volatile Registration registration;
    private volatile FramedServer server;
    private volatile Polls polls;

    Pollable(Variables variables, Settings settings) {
        this.variables = variables;
        this.settings = settings;
    }

    void start() {
        thread.start();
    }

    /** Leaves ZooKeeper, waits for one more poll if anybody may come for it, then closes everything. */
    void close() {
        closing = true;
        try {
            lastPoll();
            if (server != null) {
                server.close();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (IOException error) {
            LOG.log(Level.FINE, "close", error);
        }
        if (registration != null) {
            registration.close();
        }
        thread.interrupt();
    }

    private void lastPoll() throws InterruptedException {
        Registration node = registration;
        Polls handler = polls;
        if (node == null || handler == null) {
            return;
        }
        node.registered.await(left(REGISTER_MS), TimeUnit.MILLISECONDS); // else nobody would know what it counted
        handler.closeSoon();
        long until = System.nanoTime() + LAST_POLL_MS * 1_000_000;
        if (node.registered.getCount() == 0 && handler.polled.getCount() > 0) {
            handler.lastPoll.await(left(FOUND_MS), TimeUnit.MILLISECONDS); // a node that comes and goes is seen by nobody
        }
        if (node.withdraw()) {
            handler.lastPoll.await(until - System.nanoTime(), TimeUnit.NANOSECONDS);
        }
    }

    private long left(long millis) {
        return millis - (System.nanoTime() - begun) / 1_000_000;
    }

    private void run() {
        while (!closing) {
            try {
                serve();
                registration.run();
                return;
            } catch (IOException | RuntimeException error) {
                LOG.warning("no endpoint yet, next try in " + RETRY_MS / 1000 + " s: " + error);
            }
            try {
                Thread.sleep(RETRY_MS);
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    private void serve() throws IOException {
        String name = settings.instance == null ? number() : settings.instance;
        long birth = System.currentTimeMillis(); // after the lock: lives of a series never overlap
        ByteBuffer id = ByteBuffer.allocate(16).putLong(uuid.getMostSignificantBits()).putLong(uuid.getLeastSignificantBits());
        id.flip();
        polls = new Polls(variables, new Endpoint(id, birth, settings.context, name, birth, 1));
        InetAddress source = source();
        server = listen(source);
        server.start();
        String host = settings.advertise == null ? source.getHostAddress().split("%")[0] : settings.advertise;
        String key = HostKey.choose(settings.host, settings.dropin, host);
        host = host.contains(":") && !host.startsWith("[") ? "[" + host + "]" : host;
        String path = "/artimon/hosts/" + key + "/" + settings.context + ":" + host + ":" + server.port() + ":" + uuid;
        String data = "{\"instance\": \"" + escaped(name) + "\", \"birth_ms\": " + birth + ", \"pid\": "
                + ProcessHandle.current().pid() + ", \"version\": 1}";
        registration = new Registration(settings.zookeeper, path, data);
    }

    private String number() {
        try {
            instance = instance == null ? Instance.take(settings.run, settings.context) : instance;
            return instance.name;
        } catch (IOException | RuntimeException error) {
            LOG.warning("no instance number, the process id is used and series end with the process: " + error);
            return "pid" + ProcessHandle.current().pid();
        }
    }

    private FramedServer listen(InetAddress source) throws IOException {
        var processor = new Bookkeeper.Processor<Bookkeeper.Iface>(polls);
        String told = settings.bind == null ? settings.advertise : settings.bind;
        if (told != null) {
            try {
                return new FramedServer(InetAddress.getByName(told), processor, polls::replied);
            } catch (IOException error) {
                if (settings.bind != null) {
                    throw error;
                }
                LOG.log(Level.FINE, "the advertised address is none of this host", error);
            }
        }
        return new FramedServer(source, processor, polls::replied);
    }

    /** This host's address on the way to ZooKeeper, the loopback address if there is no way. Sends nothing. */
    private InetAddress source() {
        for (String one : settings.zookeeper.split("/", 2)[0].split(",")) {
            String text = one.trim();
            int colon = text.matches(".*:\\d+") ? text.lastIndexOf(':') : text.length();
            int port = colon < text.length() ? Integer.parseInt(text.substring(colon + 1)) : 2181;
            try (DatagramSocket socket = new DatagramSocket()) {
                socket.connect(new InetSocketAddress(text.substring(0, colon).replaceAll("[\\[\\]]", ""), port));
                return socket.getLocalAddress();
            } catch (SocketException | RuntimeException error) {
                LOG.log(Level.FINE, text, error); // the next one
            }
        }
        return InetAddress.getLoopbackAddress();
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }
}
