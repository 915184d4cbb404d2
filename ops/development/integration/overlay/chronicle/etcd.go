package chronicle

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// In the place of etcd, tests find the log of their server: objects under the keys that kube-apiserver gives them, as
// stored. They can be read, written and deleted. There are no watches, leases, transactions and compactions.

// etcdURLVariable names the variable by which upstream's packages find etcd.
const etcdURLVariable = "KUBE_INTEGRATION_ETCD_URL"

// unusualPaths are resources whose keys do not begin with the resource.
var unusualPaths = map[string]string{
	"services": "services/specs", "endpoints": "services/endpoints", "nodes": "minions",
	"replicationcontrollers": "controllers", "ingresses.networking.k8s.io": "ingress",
}

var stores sync.Map // the prefix of keys -> the URL of the database

func init() {
	if !Enabled() {
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	os.Setenv(etcdURLVariable, "http://"+listener.Addr().String())
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, keys{})
	go server.Serve(listener)
}

type keys struct {
	etcdserverpb.UnimplementedKVServer
}

// stored is an object of a log, with its key below the prefix.
type stored struct {
	Resource, Namespace, Name, UID    string
	Revision, CreateRevision, Version int64
	Object                            json.RawMessage

	key string
}

// Range returns the objects between two keys.
func (keys) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	_, found, revision, err := between(r.Key, r.RangeEnd)
	answer := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: revision}, Count: int64(len(found))}
	if err != nil || r.CountOnly {
		return answer, err
	}
	for _, each := range found {
		answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{
			Key: []byte(each.key), Value: each.value(), ModRevision: each.Revision,
			CreateRevision: each.CreateRevision, Version: each.Version,
		})
		if r.Limit > 0 && int64(len(answer.Kvs)) == r.Limit {
			break
		}
	}
	return answer, nil
}

// Put writes an object, be it valid or not.
func (keys) Put(_ context.Context, r *etcdserverpb.PutRequest) (*etcdserverpb.PutResponse, error) {
	url, found, _, err := between(r.Key, nil)
	if err != nil {
		return nil, err
	}
	value := inPresentVersion(r.Value)
	var row stored
	operation := 1
	if len(found) > 0 {
		row, operation = found[0], 2
	} else if row, err = named(string(r.Key), value); err != nil {
		return nil, err
	}
	if row.Object, err = row.form(value); err != nil {
		return nil, err
	}
	revision, err := change(url, operation, row)
	return &etcdserverpb.PutResponse{Header: &etcdserverpb.ResponseHeader{Revision: revision}}, err
}

// DeleteRange deletes the objects between two keys.
func (keys) DeleteRange(_ context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	url, found, revision, err := between(r.Key, r.RangeEnd)
	for _, each := range found {
		if err == nil {
			revision, err = change(url, 3, each)
		}
	}
	header := &etcdserverpb.ResponseHeader{Revision: revision}
	return &etcdserverpb.DeleteRangeResponse{Header: header, Deleted: int64(len(found))}, err
}

// between returns the database of keys, the objects from first to before end (nil: only the first), and the revision.
func between(first, end []byte) (url string, found []stored, revision int64, err error) {
	prefix, url := storeOf(string(first))
	if url == "" {
		return // no server has been started
	}
	text, err := query(url, `SELECT json_build_object('Revision', revision) FROM kubechronicle.head;
		SELECT json_build_object('Resource', resource, 'Namespace', namespace, 'Name', name, 'UID', uid,
			'Revision', revision, 'CreateRevision', g.create_revision, 'Version', g.version, 'Object', object)
		FROM kubechronicle.live JOIN kubechronicle.log g USING (revision, resource, namespace, name)
		WHERE resource NOT LIKE '%.kubechronicle.dev'`)
	if err != nil {
		return
	}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var row stored
		if err = decoder.Decode(&row); err != nil {
			return
		}
		row.key = strings.Join([]string{prefix, row.path()}, "/")
		if row.Resource == "" {
			revision = row.Revision
		} else if row.key == string(first) || len(end) > 0 && row.key >= string(first) && (row.key < string(end) || end[0] == 0) {
			found = append(found, row)
		}
	}
	slices.SortFunc(found, func(a, b stored) int { return strings.Compare(a.key, b.key) })
	return
}

// storeOf returns the longest prefix of a key that a server has, and its database.
func storeOf(key string) (prefix, url string) {
	stores.Range(func(known, database any) bool {
		if name := known.(string); strings.HasPrefix(key+"/", name+"/") && len(name) > len(prefix) {
			prefix, url = name, database.(string)
		}
		return true
	})
	return
}

// path returns the key below the prefix. Custom resources, and two groups of Kubernetes, have their group in it.
func (s stored) path() string {
	plural, group, _ := strings.Cut(s.Resource, ".")
	start, unusual := unusualPaths[s.Resource]
	if !unusual {
		start = plural
	}
	if hasGroup(group) {
		start = group + "/" + plural
	}
	if s.Namespace != "" {
		start += "/" + s.Namespace
	}
	return start + "/" + s.Name
}

func hasGroup(group string) bool {
	ownStrategy := group == "apiextensions.k8s.io" || group == "apiregistration.k8s.io"
	return ownStrategy || strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io")
}

// named returns a new object for a key. Its value tells the group, its resource the key.
func named(key string, value []byte) (row stored, err error) {
	var object struct {
		APIVersion string
		Metadata   struct{ UID, Namespace, Name string }
	}
	if err = json.Unmarshal(value, &object); err != nil {
		return
	}
	prefix, _ := storeOf(key)
	path := strings.TrimPrefix(key, prefix+"/")
	group, _, grouped := strings.Cut(object.APIVersion, "/")
	if !grouped {
		group = ""
	}
	plural := strings.Split(strings.TrimPrefix(path, group+"/"), "/")[0]
	for resource, start := range unusualPaths {
		if strings.HasPrefix(path, start+"/") {
			plural, _, _ = strings.Cut(resource, ".")
		}
	}
	row = stored{
		Resource: strings.TrimSuffix(plural+"."+group, "."), UID: object.Metadata.UID,
		Namespace: object.Metadata.Namespace, Name: object.Metadata.Name,
	}
	if row.path() != path {
		err = fmt.Errorf("harness: the object of %s has the key %s", key, row.path())
	}
	return
}

// encrypted is the form of an encrypted object in the log.
type encrypted struct {
	Encrypted  string `json:"encrypted"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Data       []byte `json:"data"`
}

// value returns the bytes that kube-apiserver would have in etcd.
func (s stored) value() []byte {
	var form encrypted
	if json.Unmarshal(s.Object, &form) == nil && form.Encrypted != "" {
		return append([]byte(form.Encrypted), form.Data...)
	}
	return s.Object
}

// form returns the row's object for a value. Objects of the log begin with apiVersion, kind and metadata.
func (s stored) form(value []byte) (json.RawMessage, error) {
	if bytes.HasPrefix(value, []byte("k8s:enc:")) {
		var form encrypted
		if err := json.Unmarshal(s.Object, &form); err != nil {
			return nil, err
		}
		prefix := []byte(form.Encrypted)
		if !bytes.HasPrefix(value, prefix) {
			return nil, fmt.Errorf("harness: another provider has encrypted %q", value)
		}
		form.Data = value[len(prefix):]
		return json.Marshal(form)
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(value, &members); err != nil {
		return nil, err
	}
	var parts []string
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		if text, has := members[name]; has {
			parts = append(parts, fmt.Sprintf("%q:%s", name, text))
			delete(members, name)
		}
	}
	if rest, err := json.Marshal(members); err == nil && len(members) > 0 {
		parts = append(parts, string(rest[1:len(rest)-1]))
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}

// inPresentVersion returns an object of Kubernetes as JSON in the version in which the log has its kind, others unchanged.
func inPresentVersion(value []byte) []byte {
	definitions := runtime.NewScheme()
	install.Install(definitions)
	for _, scheme := range []*runtime.Scheme{legacyscheme.Scheme, definitions} {
		codecs := serializer.NewCodecFactory(scheme)
		object, kind, err := codecs.UniversalDecoder().Decode(value, nil, nil)
		if err != nil {
			continue
		}
		present := scheme.PrioritizedVersionsForGroup(kind.Group)[0]
		if present.Version == kind.Version && value[0] == '{' {
			return value // as invalid as the test wants it
		}
		if text, err := runtime.Encode(codecs.LegacyCodec(present), object); err == nil {
			return text
		}
	}
	return value
}

// change appends a change to the log: 1 a creation, 2 an update, 3 a deletion. It returns the change's revision.
func change(url string, operation int, row stored) (revision int64, err error) {
	text, err := query(url, fmt.Sprintf(
		`SELECT head FROM kubechronicle.append_one(%s, %d, %d::smallint, %s, %s, %s, %s, 'etcd', '', '{}', NULL, '',
			'', '', '', '', '', '', convert_from(decode('%s', 'base64'), 'UTF8')::json)`,
		quote(uuid.NewString()), row.Revision, operation, quote(row.Resource), quote(row.Namespace), quote(row.Name),
		quote(row.UID), base64.StdEncoding.EncodeToString(row.Object)))
	if err == nil {
		err = json.Unmarshal(text, &revision)
	}
	return
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func query(url, text string) ([]byte, error) {
	command := exec.Command(plan().Psql, "-qAt", "-v", "ON_ERROR_STOP=1", "-d", url)
	command.Stdin = strings.NewReader(text)
	said, err := command.Output()
	if failed, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("harness: %s", failed.Stderr)
	}
	return said, err
}
