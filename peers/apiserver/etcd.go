package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// etcd is an etcd in this process, and a client of it.
type etcd struct {
	server   *embed.Etcd
	client   *clientv3.Client
	endpoint string
}

func startEtcd(o options) (*etcd, error) {
	config := embed.NewConfig()
	config.Dir = filepath.Join(o.dataDir, "etcd")
	// It calls the closing of its own listeners an error.
	config.LogLevel = "fatal"
	config.LogOutputs = []string{"stderr"}
	config.UnsafeNoFsync = !o.fsync
	clients, err := freeURL()
	if err != nil {
		return nil, err
	}
	peers, err := freeURL()
	if err != nil {
		return nil, err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = clients, clients
	config.ListenPeerUrls, config.AdvertisePeerUrls = peers, peers
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		server.Close()
		return nil, errors.New("not ready within a minute")
	}
	endpoint := clients[0].String()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		server.Close()
		return nil, err
	}
	return &etcd{server: server, client: client, endpoint: endpoint}, nil
}

func (e *etcd) close() {
	_ = e.client.Close()
	e.server.Close()
}

// compact forgets all old versions, by the way that the API server's own compactor goes, and gives the revision up to
// which it did.
func (e *etcd) compact(ctx context.Context) (int64, error) {
	mark, err := e.client.Get(ctx, "compact_rev_key")
	if err != nil {
		return 0, err
	}
	var version int64
	if len(mark.Kvs) > 0 {
		version = mark.Kvs[0].Version
	}
	_, _, revision, err := etcd3.Compact(ctx, e.client, version, mark.Header.Revision)
	return revision, err
}

// expire deletes keys as etcd's lessor does when their lease has run out: in their order, and all at one revision, which it
// gives (server/lease/lessor.go, Revoke). Objects are stored with a lease where they have a time to live, as Events do.
func (e *etcd) expire(ctx context.Context, keys []string) (int64, error) {
	slices.Sort(keys)
	deletions := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		deletions[i] = clientv3.OpDelete(key)
	}
	answer, err := e.client.Txn(ctx).Then(deletions...).Commit()
	if err != nil {
		return 0, err
	}
	for i, deletion := range answer.Responses {
		if deletion.GetResponseDeleteRange().Deleted == 0 {
			return 0, fmt.Errorf("there is no %s", keys[i])
		}
	}
	return answer.Header.Revision, nil
}

// freeURL gives a URL on loopback with a port that nobody uses now.
func freeURL() ([]url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	return []url.URL{{Scheme: "http", Host: listener.Addr().String()}}, nil
}
