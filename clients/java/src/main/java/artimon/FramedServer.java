package artimon;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Set;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.thrift.TException;
import org.apache.thrift.TProcessor;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;

/**
 * A bounded server for framed binary Thrift: half a frame, a giant one, garbage or an idle peer costs one connection and
 * nothing else. Requests of at most 256 KiB, within 5 s; 16 connections (then the one that is idle longest gives way), 10
 * minutes idle.
 */
final class FramedServer implements Closeable {
    static final int MAX_FRAME = 256 * 1024;
    static final int MAX_CONNECTIONS = 16;
    static final int IDLE_MS = 600_000;
    static final int REQUEST_MS = 5_000;
    private static final int MAX_STRUCT_BYTES = 1 << 20;
    private static final Logger LOG = Logger.getLogger("artimon.bookkeeper");

    private final ServerSocket listener;
    private final TProcessor processor;
    private final Runnable replied;
    private final Set<Connection> connections = new HashSet<>(); // guarded by itself

    /** Listens on a free port of the address. {@code replied} runs after a reply has left, in the thread that made it. */
    FramedServer(InetAddress address, TProcessor processor, Runnable replied) throws IOException {
        this.processor = processor;
        this.replied = replied;
        this.listener = new ServerSocket(0, 64, address);
    }

    int port() {
        return listener.getLocalPort();
    }

    void start() {
        daemon("artimon-accept", this::accept).start();
    }

    @Override
    public void close() throws IOException {
        listener.close();
        synchronized (connections) {
            connections.forEach(Connection::shut);
        }
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                admit(listener.accept());
            } catch (IOException error) {
                LOG.log(Level.FINE, "accept", error); // out of descriptors, or closed
                pause();
            } catch (OutOfMemoryError error) {
                pause(); // no more threads
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void admit(Socket socket) throws IOException {
        Connection made = new Connection(socket);
        synchronized (connections) {
            if (connections.size() >= MAX_CONNECTIONS) {
                Connection oldest = connections.stream().filter(one -> one.idle)
                        .min(Comparator.comparingLong(one -> one.since - System.nanoTime())).orElse(null);
                if (oldest == null) {
                    socket.close();
                    return;
                }
                connections.remove(oldest);
                oldest.shut();
            }
            connections.add(made);
        }
        daemon("artimon-connection", made).start();
    }

    static Thread daemon(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    private final class Connection implements Runnable {
        private final Socket socket;
        private volatile boolean idle = true;
        private volatile long since = System.nanoTime();

        Connection(Socket socket) {
            this.socket = socket;
        }

        void shut() {
            try {
                socket.close();
            } catch (IOException error) {
                LOG.log(Level.FINE, "close", error);
            }
        }

        @Override
        public void run() {
            try {
                socket.setTcpNoDelay(true);
                DataInputStream in = new DataInputStream(socket.getInputStream());
                DataOutputStream out = new DataOutputStream(socket.getOutputStream());
                while (serve(in, out)) {
                    replied.run();
                }
            } catch (IOException | TException | RuntimeException | StackOverflowError error) {
                LOG.log(Level.FINE, "closed a connection", error);
            } finally {
                synchronized (connections) {
                    connections.remove(this);
                }
                shut();
            }
        }

        /** One request and its reply; false once the peer has gone. */
        private boolean serve(DataInputStream in, DataOutputStream out) throws IOException, TException {
            idle = true;
            since = System.nanoTime();
            socket.setSoTimeout(IDLE_MS);
            int first = in.read();
            if (first < 0) {
                return false;
            }
            idle = false;
            long deadline = System.nanoTime() + REQUEST_MS * 1_000_000L;
            byte[] head = receive(in, 3, deadline);
            int size = first << 24 | (head[0] & 0xff) << 16 | (head[1] & 0xff) << 8 | head[2] & 0xff;
            if (size < 0 || size > MAX_FRAME) {
                throw new IOException("a frame of " + (size & 0xffffffffL) + " bytes, at most " + MAX_FRAME);
            }
            byte[] frame = receive(in, size, deadline);
            TMemoryBuffer reply = new TMemoryBuffer(4096);
            TBinaryProtocol request = new TBinaryProtocol(
                    new TMemoryInputTransport(frame), MAX_STRUCT_BYTES, MAX_FRAME, true, true);
            processor.process(request, new TBinaryProtocol(reply));
            if (reply.length() == 0) {
                return true;
            }
            byte[] whole = new byte[4 + reply.length()];
            for (int i = 0; i < 4; i++) {
                whole[i] = (byte) (reply.length() >>> (24 - 8 * i));
            }
            System.arraycopy(reply.getArray(), 0, whole, 4, reply.length());
            out.write(whole); // in one piece: a small reply in two would wait for an acknowledgement
            out.flush();
            return true;
        }

        private byte[] receive(DataInputStream in, int size, long deadline) throws IOException {
            byte[] data = new byte[size];
            for (int at = 0; at < size; ) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    throw new SocketTimeoutException("half a request in " + REQUEST_MS + " ms");
                }
                socket.setSoTimeout((int) left);
                int count = in.read(data, at, size - at);
                if (count < 0) {
                    throw new EOFException("half a request");
                }
                at += count;
            }
            return data;
        }
    }
}
