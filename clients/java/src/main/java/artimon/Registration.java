package artimon;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * Keeps one ephemeral node alive through lost sessions, deleted nodes and restarts of ZooKeeper. {@code run} makes every
 * call to ZooKeeper but the last; ZooKeeper's own thread only wakes it.
 */
final class Registration implements Runnable, Watcher {
    static final int SESSION_MS = 10_000;
    private static final long REASSERT_MS = 60_000;
    private static final long RETRY_MAX_MS = 30_000;
    private static final long GIVE_UP_MS = 20_000;
    private static final Logger LOG = Logger.getLogger("artimon.bookkeeper");

    /** Counted down once the node was there. */
    final CountDownLatch registered = new CountDownLatch(1);
    private final String servers;
    private final String path;
    private final byte[] data;
    private boolean changed; // guarded by this, as are the next two
    private boolean withdrawn;
    private ZooKeeper client;
    private long lostSince = System.nanoTime();

    Registration(String servers, String path, String data) {
        this.servers = servers;
        this.path = path;
        this.data = data.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public synchronized void process(WatchedEvent event) {
        changed = true;
        notifyAll();
    }

    @Override
    public void run() {
        long pause = 500;
        while (true) {
            boolean good = tryEnsure();
            pause = good ? 500 : Math.min(pause * 2, RETRY_MAX_MS);
            if (!await(good ? REASSERT_MS : pause)) {
                return;
            }
        }
    }

    /** Deletes the node, if that can be done within a second and a half; no node is made any more. */
    boolean withdraw() {
        ZooKeeper last;
        synchronized (this) {
            withdrawn = true;
            last = client;
            notifyAll();
        }
        CountDownLatch done = new CountDownLatch(1);
        if (last == null || registered.getCount() > 0 || !last.getState().isConnected()) {
            return false;
        }
        last.delete(path, -1, (code, same, context) -> done.countDown(), null);
        try {
            return done.await(1500, TimeUnit.MILLISECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    void close() {
        ZooKeeper last;
        synchronized (this) {
            withdrawn = true;
            last = client;
            client = null;
            notifyAll();
        }
        end(last);
    }

    /** False once there is nothing more to do. */
    private synchronized boolean await(long millis) {
        long deadline = System.nanoTime() + millis * 1_000_000;
        try {
            while (!changed && !withdrawn) {
                long left = (deadline - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    break;
                }
                wait(left);
            }
        } catch (InterruptedException interrupted) {
            return false;
        }
        changed = false;
        return !withdrawn;
    }

    private boolean tryEnsure() {
        try {
            ZooKeeper current = connected();
            if (current == null) {
                return false;
            }
            ensure(current);
            registered.countDown();
            return true;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return false;
        } catch (Exception error) { // ZooKeeper is not there, or not as it should be: later
            LOG.log(Level.FINE, path + " is not registered yet", error);
            return false;
        }
    }

    /** A client that is connected, null if there is none yet; a dead one, or one that waits for too long, is replaced: a
     * server that lost its data refuses for ever a client that has seen more of it. */
    private ZooKeeper connected() throws Exception {
        ZooKeeper old = null;
        synchronized (this) {
            if (client != null && client.getState().isConnected()) {
                lostSince = System.nanoTime();
                return client;
            }
            boolean late = System.nanoTime() - lostSince > GIVE_UP_MS * 1_000_000;
            if (client != null && (late || !client.getState().isAlive())) {
                old = client;
                client = null;
            }
            if (client == null && !withdrawn) {
                lostSince = System.nanoTime();
                client = new ZooKeeper(servers, SESSION_MS, this);
            }
        }
        end(old);
        return null;
    }

    private static void end(ZooKeeper client) {
        try {
            if (client != null) {
                client.close(500);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The node exists, is ours and is watched. A node of another session is an older one of this process. */
    private void ensure(ZooKeeper client) throws KeeperException, InterruptedException {
        Stat stat = client.exists(path, this);
        if (stat != null && stat.getEphemeralOwner() == client.getSessionId()) {
            return;
        }
        if (stat != null) {
            client.delete(path, -1);
        }
        for (int at = path.indexOf('/', 1); at > 0; at = path.indexOf('/', at + 1)) {
            try {
                client.create(path.substring(0, at), new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException there) {
                continue;
            }
        }
        client.create(path, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        stat = client.exists(path, this);
        if (stat == null || stat.getEphemeralOwner() != client.getSessionId()) {
            throw new KeeperException.BadVersionException(path); // it changed meanwhile: again, soon
        }
    }
}
