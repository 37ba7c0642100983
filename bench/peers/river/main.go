// River, through its own client.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const page = 10_000

type NoteArgs struct {
	N int   `json:"n"`
	W int64 `json:"w,omitempty"`
}

func (NoteArgs) Kind() string { return "note" }

type noteWorker struct {
	river.WorkerDefaults[NoteArgs]
}

func (*noteWorker) Work(_ context.Context, job *river.Job[NoteArgs]) error {
	notes.handle(job.Args.N, job.Args.W)
	return nil
}

// Fires at second 0 of each minute.
type minutely struct{}

func (minutely) Next(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }

var (
	notes  *Notes
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	crons  []*river.PeriodicJob
	quiet  = slog.New(slog.NewTextHandler(io.Discard, nil))
)

func workers() *river.Workers {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noteWorker{})
	return workers
}

func inserting() (*river.Client[pgx.Tx], error) {
	if client == nil {
		made, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
		if err != nil {
			return nil, err
		}
		client = made
	}
	return client, nil
}

func prepare(ctx context.Context, _ *Order) (Answer, error) {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	return nil, err
}

func work(ctx context.Context, order *Order) (Answer, error) {
	var err error
	if notes, err = newNotes(order.Notes, order.Each); err != nil {
		return nil, err
	}
	client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger:            quiet,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 5_000}},
		FetchCooldown:     10 * time.Millisecond,
		FetchPollInterval: 100 * time.Millisecond,
		Workers:           workers(),
		PeriodicJobs:      crons,
	})
	if err == nil {
		err = client.Start(ctx)
	}
	return ownPids(), err
}

func create(ctx context.Context, order *Order) (Answer, error) {
	jobs := order.numbered()
	client, err := inserting()
	if err != nil {
		return nil, err
	}
	switch order.Way {
	case "bulk":
		for at := 0; at < len(jobs) && err == nil; at += page {
			batch := jobs[at:min(at+page, len(jobs))]
			params := make([]river.InsertManyParams, len(batch))
			for place, job := range batch {
				params[place] = river.InsertManyParams{
					Args:       NoteArgs{job.Number, order.WaitMs},
					InsertOpts: &river.InsertOpts{ScheduledAt: job.Due},
				}
			}
			_, err = client.InsertManyFast(ctx, params)
		}
	default:
		at := map[string]int{"single": 1, "callers": callers}[order.Way]
		err = byCallers(jobs, at, func(job Numbered) error {
			_, err := client.Insert(ctx, NoteArgs{job.Number, order.WaitMs}, &river.InsertOpts{ScheduledAt: job.Due})
			return err
		})
	}
	return Answer{"created": len(jobs)}, err
}

// Periodic jobs live in the memory of each client that works; the leader inserts what is due.
func addCrons(_ context.Context, order *Order) (Answer, error) {
	for number := range order.Jobs {
		crons = append(crons, river.NewPeriodicJob(minutely{}, func() (river.JobArgs, *river.InsertOpts) {
			return NoteArgs{N: number}, nil
		}, nil))
	}
	return nil, nil
}

func look(ctx context.Context, order *Order) (Answer, error) {
	var open bool
	err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM river_job
		WHERE state IN ('available', 'pending', 'retryable', 'running', 'scheduled') AND scheduled_at <= $1)`,
		time.UnixMilli(order.UntilMs)).Scan(&open)
	return Answer{"open": open}, err
}

func count(ctx context.Context, order *Order) (Answer, error) {
	var recorded, left int
	var last *int64
	err := pool.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state <> 'completed'),
		(extract(epoch FROM max(finalized_at)) * 1000)::bigint FROM river_job
		WHERE (args ->> 'n')::bigint >= $1 AND (args ->> 'n')::bigint < $2`, order.First, order.End).Scan(&recorded, &left, &last)
	return Answer{"recorded": recorded, "left": left, "lastMs": last}, err
}

func started(context.Context, *Order) (Answer, error) {
	return Answer{"started": notes.started.Load()}, nil
}

func end(ctx context.Context, _ *Order) (Answer, error) {
	if notes != nil {
		brief, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		_ = client.StopAndCancel(brief)
		notes.write()
	}
	return nil, nil
}

func main() {
	config, err := pgxpool.ParseConfig(os.Getenv("BENCH_STORE"))
	if err == nil {
		config.MaxConns = 20
		pool, err = pgxpool.NewWithConfig(context.Background(), config)
	}
	if err != nil {
		panic(err)
	}
	speak(map[string]func(context.Context, *Order) (Answer, error){
		"prepare": prepare, "work": work, "create": create, "crons": addCrons,
		"started": started, "look": look, "count": count, "end": end,
	})
}
