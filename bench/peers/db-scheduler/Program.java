// db-scheduler, through its client and scheduler. The number and the wait of a job are in its id: it has no data.

import com.fasterxml.jackson.databind.JsonNode;
import com.github.kagkarlsson.scheduler.Scheduler;
import com.github.kagkarlsson.scheduler.SchedulerClient;
import com.github.kagkarlsson.scheduler.task.SchedulableInstance;
import com.github.kagkarlsson.scheduler.task.TaskInstance;
import com.github.kagkarlsson.scheduler.task.helper.OneTimeTask;
import com.github.kagkarlsson.scheduler.task.helper.RecurringTask;
import com.github.kagkarlsson.scheduler.task.helper.Tasks;
import com.github.kagkarlsson.scheduler.task.schedule.Schedules;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.net.URI;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

public final class Program {
  private static final int PAGE = 5_000;
  private static final String TABLE =
      """
      CREATE TABLE scheduled_tasks (
        task_name text NOT NULL,
        task_instance text NOT NULL,
        task_data bytea,
        execution_time timestamptz NOT NULL,
        picked boolean NOT NULL,
        picked_by text,
        last_success timestamptz,
        last_failure timestamptz,
        consecutive_failures int,
        last_heartbeat timestamptz,
        version bigint NOT NULL,
        priority smallint,
        PRIMARY KEY (task_name, task_instance)
      );
      CREATE INDEX execution_time_idx ON scheduled_tasks (execution_time);
      CREATE INDEX last_heartbeat_idx ON scheduled_tasks (last_heartbeat);
      """;

  private final HikariDataSource database = new HikariDataSource(config());
  private final OneTimeTask<Void> task =
      Tasks.oneTime("note", Void.class).execute((instance, context) -> handle(instance));
  private final SchedulerClient client = SchedulerClient.Builder.create(database, task).build();
  private final List<RecurringTask<Void>> crons = new ArrayList<>();
  private Speak.Notes notes;
  private Scheduler scheduler;

  public static void main(String[] words) throws Exception {
    Program program = new Program();
    Speak.speak(
        Map.of(
            "prepare", program::prepare,
            "crons", program::addCrons,
            "work", program::work,
            "create", program::create,
            "started", order -> Map.of("started", program.notes.started()),
            "look", program::look,
            "count", program::count,
            "end", program::end));
  }

  private static HikariConfig config() {
    URI url = URI.create(System.getenv("BENCH_STORE"));
    String[] user = (url.getUserInfo() == null ? "postgres" : url.getUserInfo()).split(":", 2);
    HikariConfig config = new HikariConfig();
    config.setJdbcUrl("jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath() + "?reWriteBatchedInserts=true");
    config.setUsername(user[0]);
    if (user.length > 1) config.setPassword(user[1]);
    config.setMaximumPoolSize(20);
    config.setMinimumIdle(2);
    return config;
  }

  private void handle(TaskInstance<Void> instance) {
    String[] words = instance.getId().split(":");
    try {
      notes.handle(Integer.parseInt(words[0]), Long.parseLong(words[1]));
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
    }
  }

  private Map<String, ?> prepare(JsonNode order) throws SQLException {
    try (Connection connection = database.getConnection(); Statement statement = connection.createStatement()) {
      statement.execute(TABLE);
    }
    return null;
  }

  private Map<String, ?> addCrons(JsonNode order) {
    for (int number = 0; number < order.get("jobs").asInt(); number++) {
      int mine = number;
      crons.add(
          Tasks.recurring("c" + number, Schedules.cron("0 * * * * *", ZoneOffset.UTC))
              .execute(
                  (instance, context) -> {
                    try {
                      notes.handle(mine, 0);
                    } catch (InterruptedException error) {
                      Thread.currentThread().interrupt();
                    }
                  }));
    }
    return null;
  }

  private Map<String, ?> work(JsonNode order) throws Exception {
    notes = new Speak.Notes(order);
    scheduler =
        Scheduler.create(database, task)
            .startTasks(crons)
            .threads(100)
            .pollUsingLockAndFetch(0.5, 4.0)
            .pollingInterval(Duration.ofMillis(100))
            .build();
    scheduler.start();
    return Speak.ownPids();
  }

  private Map<String, ?> create(JsonNode order) throws Exception {
    List<Speak.Numbered> jobs = Speak.numbered(order);
    String rest = ":" + order.get("waitMs").asLong();
    if (order.get("way").asText().equals("bulk")) {
      for (int at = 0; at < jobs.size(); at += PAGE) {
        List<SchedulableInstance<?>> page = new ArrayList<>();
        for (Speak.Numbered job : jobs.subList(at, Math.min(at + PAGE, jobs.size()))) {
          page.add(SchedulableInstance.of(task.instance(job.number() + rest), job.due()));
        }
        client.scheduleBatch(page);
      }
    } else {
      int callers = order.get("way").asText().equals("single") ? 1 : Speak.CALLERS;
      Speak.byCallers(jobs, callers, job -> client.scheduleIfNotExists(task.instance(job.number() + rest), job.due()));
    }
    return Map.of("created", jobs.size());
  }

  private Map<String, ?> look(JsonNode order) throws SQLException {
    String query = "SELECT EXISTS (SELECT 1 FROM scheduled_tasks WHERE execution_time <= to_timestamp(?::float8 / 1000))";
    try (Connection connection = database.getConnection(); PreparedStatement look = connection.prepareStatement(query)) {
      look.setLong(1, order.get("untilMs").asLong());
      try (ResultSet rows = look.executeQuery()) {
        rows.next();
        return Map.of("open", rows.getBoolean(1));
      }
    }
  }

  private Map<String, ?> count(JsonNode order) throws SQLException {
    String query =
        "SELECT count(*) FROM scheduled_tasks WHERE task_name = 'note' "
            + "AND split_part(task_instance, ':', 1)::bigint >= ? AND split_part(task_instance, ':', 1)::bigint < ?";
    Map<String, Object> answer = new HashMap<>();
    try (Connection connection = database.getConnection(); PreparedStatement count = connection.prepareStatement(query)) {
      count.setLong(1, order.get("first").asLong());
      count.setLong(2, order.get("end").asLong());
      try (ResultSet rows = count.executeQuery()) {
        rows.next();
        answer.put("left", rows.getInt(1));
      }
    }
    answer.put("recorded", null);
    answer.put("lastMs", null);
    return answer;
  }

  private Map<String, ?> end(JsonNode order) {
    if (scheduler != null) scheduler.stop();
    if (notes != null) notes.write();
    return null;
  }
}
