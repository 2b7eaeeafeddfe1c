package artimon;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import artimon.bookkeeper.Bookkeeper;
import artimon.bookkeeper.Columns;
import artimon.bookkeeper.Endpoint;
import artimon.bookkeeper.Rows;
import artimon.bookkeeper.VarType;
import artimon.bookkeeper.Variable;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.transport.TSocket;
import org.apache.thrift.transport.layered.TFramedTransport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

final class PollsTest {
    private static final Map<String, String> LABELS = Map.of("place", "Zürich ☃");
    private final Variables variables = new Variables();
    private final Endpoint identity = new Endpoint(ByteBuffer.allocate(16), 1, "shop", "j0", 1, 1);
    private final Polls polls = new Polls(variables, identity);
    private FramedServer server;
    private TFramedTransport transport;
    private Bookkeeper.Client client;

    @BeforeEach
    void serve() throws Exception {
        var processor = new Bookkeeper.Processor<Bookkeeper.Iface>(polls);
        server = new FramedServer(InetAddress.getLoopbackAddress(), processor, polls::replied);
        server.start();
        transport = new TFramedTransport(new TSocket("127.0.0.1", server.port(), 10_000));
        transport.open();
        client = new Bookkeeper.Client(new TBinaryProtocol(transport));
    }

    @AfterEach
    void end() throws IOException {
        transport.close();
        server.close();
    }

    private void fill() {
        variables.addInteger("integer", LABELS, Long.MAX_VALUE);
        variables.setDouble("double", LABELS, Double.NaN);
        variables.setBoolean("boolean", LABELS, true);
        variables.setString("string", LABELS, "wört\n");
        variables.setString("string", Map.of(), "wört\n");
        variables.describe("integer", "help", "unit", "");
    }

    @Test
    void rowsHoldEveryValueInItsOwnType() throws Exception {
        fill();
        Rows rows = client.getVars();
        assertEquals("shop", rows.getEndpoint().getContext());
        assertTrue(rows.getEndpoint().getTime_ms() > 1_600_000_000_000L);
        Map<String, Variable> byName = rows.getVariables().stream()
                .filter(one -> one.getLabels().equals(LABELS)).collect(Collectors.toMap(Variable::getName, one -> one));
        assertEquals(Long.MAX_VALUE, byName.get("integer").getValue().getInteger());
        assertEquals("unit", byName.get("integer").getUnit());
        assertTrue(Double.isNaN(byName.get("double").getValue().getDbl()));
        assertTrue(byName.get("boolean").getValue().isTruth());
        assertEquals("wört\n", byName.get("string").getValue().getStr());
        assertEquals(5, rows.getVariablesSize());
    }

    @Test
    void columnsAgreeWithTheirSchemaAndSum() throws Exception {
        fill();
        Columns columns = client.getColumns(ByteBuffer.allocate(0), null);
        assertEquals(5, columns.getSchema().getNamesSize());
        byte[] types = columns.getSchema().getTypes();
        assertArrayEquals(new byte[] {0, 1, 2, 3, 3}, types);
        CRC32 sum = new CRC32();
        sum.update(columns.getValues());
        assertEquals((int) sum.getValue(), ByteBuffer.wrap(columns.getCrc()).order(ByteOrder.LITTLE_ENDIAN).getInt());
        ByteBuffer values = ByteBuffer.wrap(columns.getValues()).order(ByteOrder.LITTLE_ENDIAN);
        assertEquals(Long.MAX_VALUE, values.getLong(0));
        assertTrue(Double.isNaN(values.getDouble(8)));
        assertEquals(1, values.getLong(16));
        assertEquals(List.of("wört\n"), columns.getStrings());
    }

    @Test
    void theSchemaIsSentOnlyWhenItIsAnother() throws Exception {
        fill();
        Columns first = client.getColumns(ByteBuffer.allocate(0), null);
        variables.addInteger("integer", LABELS, -1);
        variables.addInteger("integer", LABELS, -1);
        Columns second = client.getColumns(ByteBuffer.wrap(first.getSchema_id()), null);
        assertTrue(second.isSetSchema()); // a negative add made a gauge of it
        Columns third = client.getColumns(ByteBuffer.wrap(second.getSchema_id()), null);
        assertFalse(third.isSetSchema());
        assertArrayEquals(second.getSchema_id(), third.getSchema_id());
        variables.remove("double", LABELS, VarType.DOUBLE);
        Columns fourth = client.getColumns(ByteBuffer.wrap(third.getSchema_id()), null);
        assertEquals(4, fourth.getSchema().getNamesSize());
        assertNotEquals(ByteBuffer.wrap(third.getSchema_id()), ByteBuffer.wrap(fourth.getSchema_id()));
        assertNull(fourth.getPoller());
    }

    @Test
    void theLastPollIsOneWhoseValuesWereReadAfterTheEndBegan() throws Exception {
        client.getVars();
        assertTrue(polls.polled.await(10, TimeUnit.SECONDS));
        assertEquals(1, polls.lastPoll.getCount());
        polls.closeSoon();
        client.getColumns(null, null);
        assertTrue(polls.lastPoll.await(10, TimeUnit.SECONDS));
    }

    @Test
    void badBytesCostTheirConnectionAndNothingElse() throws Exception {
        byte[][] bad = {
            "GET / HTTP/1.1\r\n\r\n".getBytes("US-ASCII"),
            {0x7f, -1, -1, -1, 1},
            {-1, -1, -1, -1, 1},
            {0, 0, 0, 4, 1, 2, 3, 4},
            {0, 0, 0, 12, (byte) 0x80, 1, 0, 1, 0x7f, -1, -1, -1, 0, 0, 0, 0},
        };
        for (byte[] bytes : bad) {
            try (Socket socket = new Socket("127.0.0.1", server.port())) {
                socket.setSoTimeout(10_000);
                socket.getOutputStream().write(bytes);
                InputStream in = socket.getInputStream();
                assertEquals(-1, in.read());
            } catch (java.net.SocketException reset) {
                assertTrue(reset.getMessage().toLowerCase(java.util.Locale.ROOT).contains("reset"));
            }
        }
        assertEquals("shop", client.getVars().getEndpoint().getContext());
    }

    @Test
    void idleConnectionsGiveWay() throws Exception {
        List<Socket> idle = new ArrayList<>();
        for (int i = 0; i < 3 * FramedServer.MAX_CONNECTIONS; i++) {
            idle.add(new Socket("127.0.0.1", server.port()));
        }
        try (TFramedTransport fresh = new TFramedTransport(new TSocket("127.0.0.1", server.port(), 10_000))) {
            fresh.open();
            assertEquals("shop", new Bookkeeper.Client(new TBinaryProtocol(fresh)).getVars().getEndpoint().getContext());
        }
        for (Socket socket : idle) {
            socket.close();
        }
    }
}
