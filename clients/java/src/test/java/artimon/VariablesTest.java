package artimon;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import artimon.bookkeeper.Kind;
import artimon.bookkeeper.VarType;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class VariablesTest {
    private static final Map<String, String> NONE = Collections.emptyMap();
    private final Variables variables = new Variables(100);

    private Cell only(String name) {
        return variables.all().stream().filter(cell -> cell.name.equals(name)).findFirst().orElseThrow();
    }

    private long refused(String reason) {
        Long count = variables.get(Variables.REFUSED, Map.of("reason", reason), VarType.INTEGER, cell -> cell.bits);
        return count == null ? 0 : count;
    }

    @Test
    void anAddReturnsTheNewValueAndMakesACounter() {
        assertEquals(5, variables.addInteger("n", NONE, 5));
        assertEquals(7, variables.addInteger("n", null, 2));
        assertEquals(Kind.COUNTER, only("n").kind);
        assertEquals(6, variables.addInteger("n", NONE, -1));
        assertEquals(Kind.GAUGE, only("n").kind);
        assertEquals(1.5, variables.addDouble("d", NONE, 1.5));
        assertEquals(1.75, variables.addDouble("d", NONE, 0.25));
    }

    @Test
    void emptyValuesAreNoLabelsAndOrderDoesNotMatter() {
        Map<String, String> labels = new HashMap<>(Map.of("b", "2", "a", "1", "c", ""));
        variables.addInteger("n", labels, 1);
        labels.put("a", "changed afterwards");
        assertEquals(2, variables.addInteger("n", Map.of("a", "1", "b", "2"), 1));
        assertEquals(Map.of("a", "1", "b", "2"), only("n").labels);
    }

    @Test
    void sumsStopAtTheEndsOfInt64() {
        variables.setInteger("n", NONE, Long.MAX_VALUE - 1);
        assertEquals(Long.MAX_VALUE, variables.addInteger("n", NONE, 5));
        variables.setInteger("n", NONE, Long.MIN_VALUE);
        assertEquals(Long.MIN_VALUE, variables.addInteger("n", NONE, -1));
        assertEquals(2, refused("saturated"));
    }

    @Test
    void anIntegerBecomesADoubleOnceAndNothingElseChangesItsType() {
        variables.addInteger("n", NONE, 41);
        assertEquals(41.5, variables.addDouble("n", NONE, 0.5));
        assertEquals(0, variables.addInteger("n", NONE, 1));
        variables.setString("n", NONE, "text");
        assertEquals(2, refused("type"));
        assertEquals(41.5, variables.get("n", NONE, VarType.DOUBLE, Cell::real));
        assertNull(variables.get("n", NONE, VarType.INTEGER, cell -> cell.bits));
    }

    @Test
    void aVariableEndsAndBeginsAnew() {
        variables.addInteger("n", NONE, 41);
        variables.remove("n", NONE, VarType.DOUBLE);
        assertEquals(42, variables.addInteger("n", NONE, 1));
        variables.remove("n", NONE, VarType.INTEGER);
        assertTrue(variables.all().isEmpty());
        assertEquals(1, variables.addInteger("n", NONE, 1));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "1n", "n n", "é", "n{}"})
    void badNamesAreCountedAndChangeNothing(String name) {
        assertEquals(0, variables.addInteger(name, NONE, 1));
        assertEquals(1, refused("name"));
        assertEquals(1, variables.all().size());
    }

    @Test
    void badLabelsAreCounted() {
        Map<String, String> nothing = new HashMap<>();
        nothing.put("a", null);
        variables.addInteger("n", nothing, 1);
        variables.addInteger("n", Map.of("__a", "x"), 1);
        variables.addInteger("n", Map.of("a", "x".repeat(1025)), 1);
        variables.addInteger("n", Map.of("a", "\ud800"), 1);
        assertEquals(4, refused("labels"));
        variables.addDouble("n", NONE, Double.NaN);
        variables.setString("n", NONE, null);
        assertEquals(2, refused("value"));
        variables.describe("n", "", "", "conter");
        assertEquals(1, refused("describe"));
        assertNull(variables.get(null, null, VarType.INTEGER, cell -> cell.bits));
    }

    @Test
    void beyondTheLimitNewVariablesAreRefusedAndOldOnesGoOn() {
        for (int i = 0; i < 150; i++) {
            variables.addInteger("n", Map.of("i", "" + i), 1);
        }
        assertEquals(50, refused("limit"));
        assertEquals(2, variables.addInteger("n", Map.of("i", "3"), 1));
    }

    @Test
    void inStrictModeRefusalsAreThrownAndCounted() {
        variables.strict = true;
        VariableRefused error = assertThrows(VariableRefused.class, () -> variables.addInteger("1", NONE, 1));
        assertEquals("name", error.reason());
        assertEquals(1, refused("name"));
    }

    @Test
    void noAddIsLostAndEveryReturnedValueIsAnother() throws InterruptedException {
        int threads = 8;
        int each = 20_000;
        Set<Long> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch go = new CountDownLatch(1);
        Thread[] workers = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            workers[i] = new Thread(() -> {
                try {
                    go.await();
                } catch (InterruptedException interrupted) {
                    return;
                }
                for (int n = 0; n < each; n++) {
                    seen.add(variables.addInteger("n", Map.of("a", "x"), 1));
                    variables.addDouble("d", NONE, 0.5);
                }
            });
            workers[i].start();
        }
        go.countDown();
        for (Thread worker : workers) {
            worker.join();
        }
        assertEquals(threads * each, seen.size());
        assertEquals(threads * each, only("n").bits);
        assertEquals(threads * each * 0.5, only("d").real());
    }
}
