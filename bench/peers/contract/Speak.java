// The part of the contract (bench/peers/__init__.py) that programs in Java share.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

final class Speak {
  static final int CALLERS = 16;

  private Speak() {}

  interface Order {
    Map<String, ?> run(JsonNode order) throws Exception;
  }

  interface Create {
    void create(Numbered job) throws Exception;
  }

  record Numbered(int number, Instant due) {}

  static List<Numbered> numbered(JsonNode order) {
    List<Numbered> jobs = new ArrayList<>();
    for (int place = 0; place < order.get("jobs").asInt(); place++) {
      long dueMs = order.get("dueMs").asLong() + place * order.get("stepUs").asLong() / 1000;
      jobs.add(new Numbered(order.get("first").asInt() + place, Instant.ofEpochMilli(dueMs)));
    }
    return jobs;
  }

  // One job a call; each caller waits for its answer before it calls again.
  static void byCallers(List<Numbered> jobs, int callers, Create create) throws InterruptedException, ExecutionException {
    AtomicInteger next = new AtomicInteger();
    ExecutorService threads = Executors.newFixedThreadPool(callers);
    List<Future<?>> calling = new ArrayList<>();
    for (int caller = 0; caller < callers; caller++) {
      calling.add(
          threads.submit(
              () -> {
                for (int place = next.getAndIncrement(); place < jobs.size(); place = next.getAndIncrement()) {
                  create.create(jobs.get(place));
                }
                return null;
              }));
    }
    for (Future<?> each : calling) each.get();
    threads.shutdown();
  }

  static Map<String, ?> ownPids() {
    List<Long> own = List.of(ProcessHandle.current().pid());
    return Map.of("pids", Map.of("worker", own, "scheduler", own));
  }

  // The calls of handlers, as lines.
  static final class Notes {
    private final FileOutputStream file;
    private final boolean each;
    private final StringBuilder lines = new StringBuilder();
    private int started;

    Notes(JsonNode order) throws IOException {
      file = new FileOutputStream(order.get("notes").asText(), true);
      each = order.get("each").asBoolean();
    }

    void handle(int number, long waitMs) throws InterruptedException {
      note(number, "\n", 1);
      if (waitMs > 0) {
        Thread.sleep(waitMs);
        note(number, " end\n", 0);
      }
    }

    synchronized int started() {
      return started;
    }

    synchronized void write() {
      try {
        file.write(lines.toString().getBytes(StandardCharsets.US_ASCII));
        lines.setLength(0);
      } catch (IOException error) {
        System.err.println(error);
      }
    }

    private synchronized void note(int number, String rest, int count) {
      Instant now = Instant.now();
      long us = now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
      lines.append(number).append(' ').append(us).append(rest);
      started += count;
      if (each) write();
    }
  }

  // `orders` has what is done at each order that the peer has a use for.
  static void speak(Map<String, Order> orders) throws IOException {
    PrintStream out = System.out;
    System.setOut(System.err); // whatever a library prints is not an answer
    ObjectMapper json = new ObjectMapper();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonNode order = json.readTree(line);
      String what = order.get("do").asText();
      long begun = System.nanoTime();
      Map<String, Object> answer = new HashMap<>();
      try {
        Map<String, ?> found = orders.containsKey(what) ? orders.get(what).run(order) : null;
        if (found != null) answer.putAll(found);
        answer.put("done", what);
        if (what.equals("create")) answer.put("sec", (System.nanoTime() - begun) / 1e9);
      } catch (Exception error) {
        answer = Map.of("failed", error.toString());
      }
      out.println(json.writeValueAsString(answer));
      out.flush();
      if (what.equals("end")) break;
    }
    System.exit(0);
  }
}
