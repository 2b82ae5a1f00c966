// The page of an explanation: the JSON of explain_text.cpp, and what draws it.
#include <string_view>

#include "arete/compile/explain.h"

namespace arete::compile {
namespace {

constexpr std::string_view kPageHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Compiled functions</title>
<style>
:root{--page:#f6f7f9;--card:#fff;--text:#1c2330;--soft:#5b6575;--line:#dfe3ea;--grid:#e9ecf1;
--pointwise:#2563eb;--reduce:#0f8a6d;--product:#9333b8;--data:#b7791f;--other:#5b6575;
--temporary:#d9480f;--result:#0f8a6d;--apart:#be2a5b}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f28;--text:#e6e9ef;--soft:#98a2b3;
--line:#2c3340;--grid:#272d38;--pointwise:#6ea8fe;--reduce:#4fd1a5;--product:#cf9bff;--data:#e8c468;
--other:#98a2b3;--temporary:#ff9e64;--result:#4fd1a5;--apart:#ff85ab}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);line-height:1.45;
font:15px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1280px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:24px;margin:0 0 2px}h2{font-size:16px;margin:0 0 8px}
.sub{color:var(--soft);margin:0 0 16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin-bottom:16px}
.bar{display:flex;flex-wrap:wrap;gap:8px 18px;margin-bottom:14px;align-items:center}
.bar label{color:var(--soft);font-size:13px;max-width:100%}
select{font:inherit;font-size:14px;background:var(--card);color:var(--text);border:1px solid var(--line);
border-radius:6px;padding:3px 8px;margin-left:6px;max-width:100%}
.figures{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:16px}
.figure{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 16px;min-width:120px}
.figure b{display:block;font-size:20px;font-weight:650;font-variant-numeric:tabular-nums}
.figure span{color:var(--soft);font-size:13px}
.scroll{overflow:auto;max-height:78vh;border-top:1px solid var(--grid)}
svg{display:block}
svg text{fill:var(--text);font-size:12px;font-variant-numeric:tabular-nums}
svg text.s{fill:var(--soft)}
.g{stroke:var(--grid)}.a{stroke:var(--line)}
.row{cursor:default}.row .hit{fill:transparent}.row:hover .hit,.row.on .hit{fill:var(--soft);opacity:.13}
.edge{fill:none;opacity:.55}.edge.on{opacity:1}.dim .edge:not(.on){opacity:.1}
.no{fill:none;stroke:var(--apart);stroke-dasharray:3 3;opacity:.5}.no.on{opacity:1}.dim .no:not(.on){opacity:.08}
.legend{display:flex;flex-wrap:wrap;gap:3px 16px;font-size:13px;color:var(--soft);margin:0 0 8px}
.legend i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.legend i.l{height:0;border-top:3px solid;border-radius:0;vertical-align:3px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:500;text-align:left;padding:4px 12px 4px 0;font-size:13px;white-space:nowrap}
td{padding:4px 12px 4px 0;border-top:1px solid var(--grid);vertical-align:top;overflow-wrap:anywhere}
td.n,th.n{text-align:right;white-space:nowrap}
.tip{position:fixed;pointer-events:none;visibility:hidden;background:var(--card);z-index:1;max-width:560px;
border:1px solid var(--line);border-radius:8px;padding:8px 11px;font-size:13px;
box-shadow:0 4px 14px rgba(0,0,0,.2);font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.tip .h{font-weight:600}.tip .s{color:var(--soft)}.tip .r{color:var(--apart)}
</style></head><body><main>
<h1>Compiled functions</h1><p class="sub" id="sub"></p>
<div class="bar" id="bar"></div><div class="figures" id="figures"></div>
<section class="card" id="breaks"></section>
<section class="card" id="traces"></section>
<section class="card"><h2>The plan</h2><div class="bar" id="planbar"></div><p class="sub" id="plansub"></p>
<div class="legend" id="legend"></div><div class="scroll"><svg id="plan" role="img" aria-label="the steps of the plan"></svg></div></section>
<section class="card"><h2>Memory over the steps</h2><div class="legend" id="memlegend"></div>
<svg id="memory" viewBox="0 0 1200 260" width="100%" role="img" aria-label="bytes that are needed after each step"></svg></section>
<section class="card" id="apart"></section>
<section class="card" id="kernels"></section>
</main><div class="tip" id="tip"></div><script>
const D=)html";

constexpr std::string_view kPageTail = R"html(;
'use strict';
const $=id=>document.getElementById(id);
const unit=(n,s,units,base)=>{let i=0;n=+n;while(Math.abs(n)>=base&&i<units.length-1){n/=base;i++}
 return (n===0?'0':n>=base?n.toFixed(0):String(+n.toPrecision(3)))+' '+units[i]+s};
const bytes=n=>unit(n,'B',['','k','M','G','T'],1000);
const time=s=>s>=1?s.toPrecision(3)+' s':unit(s*1e6,'s',['µ','m'],1000);
const count=(n,what)=>n+' '+what+(n===1?'':'s');
const node=(name,attributes,text)=>{const e=document.createElementNS('http://www.w3.org/2000/svg',name);
 for(const k in attributes)e.setAttribute(k,attributes[k]);if(text!==undefined)e.textContent=text;return e};
const html=(name,text,cls)=>{const e=document.createElement(name);if(text!==undefined)e.textContent=text;
 if(cls)e.className=cls;return e};
function choice(where,label,names){
 const l=html('label',label),s=html('select');
 names.forEach((n,i)=>{const o=html('option',n);o.value=i;s.append(o)});
 l.append(s);$(where).append(l);return s}
function table(id,title,heads,rows,none){
 const card=$(id);card.replaceChildren(html('h2',title));
 if(!rows.length){card.append(html('div',none,'sub'));return}
 const t=html('table'),h=html('tr');
 heads.forEach(x=>h.append(html('th',x.replace('#',''),x[0]==='#'?'n':'')));t.append(h);
 const MOST=400;
 rows.slice(0,MOST).forEach(r=>{const tr=html('tr');
  r.forEach((x,i)=>tr.append(html('td',String(x),heads[i][0]==='#'?'n':'')));t.append(tr)});
 card.append(t);if(rows.length>MOST)card.append(html('div','and '+(rows.length-MOST)+' others','sub'))}
const COLOURS={pointwise:'pointwise',multi_pointwise:'pointwise',dropout:'pointwise',reduce:'reduce',fused:'reduce',
 multi_reduce:'reduce',arg_reduce:'reduce',scan:'reduce',gemm:'product',conv:'product',attention:'product',recurrence:'product',
 linalg:'product',fft:'product',copy:'data',fill:'data',iota:'data',gather:'data',scatter:'data',take_rows:'data',add_rows:'data',
 random:'data',sort:'data',topk:'data',select:'data',compact:'data',pool:'reduce'};
const NAMES=[['pointwise','element by element'],['reduce','reduction'],['product','product, convolution, attention'],
 ['data','copies, indices, random numbers'],['other','other']];
const kind=s=>COLOURS[s.text.split('(')[0]]||'other';
const moved=s=>s.bytes_read+s.bytes_written;
const F=D.functions;
let plans=[],plan=null;
const names=F.map((f,i)=>(f.name||'function '+(i+1))+' · '+count(f.stats.calls,'call'));
const which=choice('bar','function',names.length?names:['none']);
const planOf=choice('planbar','plan',['']);
which.addEventListener('change',draw);planOf.addEventListener('change',drawPlan);
function draw(){
 const f=F[+which.value];if(!f)return;
 const s=f.stats,per=Math.max(1,s.calls);
 const before=s.bytes_recorded/per,after=s.bytes_moved/per,calls=s.primitive_calls/per,steps=s.steps/per;
 $('sub').textContent=count(F.length,'function')+'. '+(f.exact?'Results have the bits of eager code (exact).':
  'Floats are not rounded between operators of one kernel.');
 $('figures').replaceChildren(...[[s.calls,'calls'],[Math.round(calls)+' → '+Math.round(steps),'kernels a call, before → now'],
  [bytes(before)+' → '+bytes(after),'moved a call, before → now'],[s.breaks,'looks at values'],[s.plans+' for '+s.traces,'plans for lists of calls'],
  [time(s.planning),'planning, in all'],[time(s.launching/per),'host time of a call in plans']].map(([v,l])=>{
   const e=html('div','','figure');e.append(html('b',String(v)),html('span',l));return e}));
 table('breaks','Breaks: where a value is looked at',['where','value of','#times','#calls made there','#wait for the GPU','what would help'],
  f.breaks.map(b=>[b.where||'?',b.what||'?',b.count,time(b.making/b.count),b.waiting?time(b.waiting/b.count):'–',b.advice]),
  'None: each call of the function is one plan.');
 table('traces','Lists of calls, and why there are several',['#list','part','#calls','#ran','differs','where'],
  f.traces.map(t=>[t.number,t.segment<0?'backward pass outside':t.segment===0?'from the beginning':'after look '+t.segment,t.calls,t.runs,
   t.changed?'from list '+t.nearest+' at call '+t.call+'; '+t.changed:'',t.where]),'Nothing was called.');
 plans=[];
 f.traces.forEach(t=>t.plans.forEach((p,i)=>plans.push([t,p,i])));
 plans.sort((a,b)=>b[1].runs*(b[1].bytes_moved+1000*b[1].steps.length)-a[1].runs*(a[1].bytes_moved+1000*a[1].steps.length));
 planOf.replaceChildren(...(plans.length?plans:[null]).map((x,i)=>{
  const o=html('option',x?'list '+x[0].number+(x[0].plans.length>1?', choice of results '+(x[2]+1):'')+' · '+
   count(x[1].steps.length,'step')+' · ran '+count(x[1].runs,'time'):'none');o.value=i;return o}));
 drawPlan()}
function drawPlan(){
 const x=plans[+planOf.value]||null;plan=x&&x[1];
 const svg=$('plan');svg.replaceChildren();
 if(!plan){$('plansub').textContent='No plan was made.';$('legend').replaceChildren();svg.setAttribute('height',0);
  drawMemory();table('apart','What stayed apart, and why',[],[],'Nothing.');table('kernels','Kernels compiled',[],[],'None.');return}
 const p=plan,S=p.steps;
 $('plansub').textContent=p.recorded+' calls became '+count(S.length,'step')+(p.left_out?', '+p.left_out+' left out':'')+
  (p.recomputed?', '+count(p.recomputed,'step')+' run again to save memory':'')+'; '+
  bytes(p.bytes_recorded)+' → '+bytes(p.bytes_moved)+' moved; '+bytes(p.temporaries)+' of temporaries in an arena of '+bytes(p.arena)+'; '+
  (p.is_graph?'launched as one graph':'no graph: '+p.why_no_graph)+'; the host takes '+time(p.launching/Math.max(1,p.runs))+' for a run.';
 const legend=NAMES.filter(([k])=>S.some(s=>kind(s)===k)).map(([k,n])=>['i',k,n]);
 legend.push(['l','temporary','temporary memory between steps'],['l','result','a result that is read again']);
 if(p.apart.length)legend.push(['l','apart','stayed apart, see below']);
 $('legend').replaceChildren(...legend.map(([t,k,n])=>{const e=html('span'),i=html('i','',t==='l'?'l':'');
  if(t==='l'){i.style.borderColor='var(--'+k+')';if(k==='apart')i.style.borderTopStyle='dashed'}else i.style.background='var(--'+k+')';
  e.append(i,n);return e}));
 // Rows of steps: what stayed apart on the left, memory between steps on the right.
 const H=S.length>150?17:24,T=22,LEFT=90,BOX=430,BARS=190,ARCS=300,X=LEFT+BOX,E=X+BARS+14,W=E+ARCS+90;
 const y=i=>T+i*H+H/2,most=Math.max(1,...S.map(s=>Math.max(moved(s),s.bytes_before)));
 const height=T+S.length*H+8;
 svg.setAttribute('width',W);svg.setAttribute('height',height);svg.setAttribute('viewBox','0 0 '+W+' '+height);
 svg.append(node('text',{x:LEFT,y:14,class:'s'},'step'),node('text',{x:X,y:14,class:'s'},'bytes moved (outline: before)'),
  node('text',{x:E+6,y:14,class:'s'},'memory between steps'));
 const edges=node('g',{}),rows=node('g',{});svg.append(edges,rows);
 const reach=d=>14+(ARCS-20)*Math.log(1+d)/Math.log(2+Math.max(1,S.length));
 const thick=b=>1+5*Math.sqrt(b/most);
 const writer=new Map();
 S.forEach((s,i)=>{
  s.reads.forEach(b=>{const w=writer.get(b);if(w===undefined||w===i)return;
   const r=reach(i-w),a=y(w),z=y(i),B=p.buffers[b];
   const e=node('path',{class:'edge',d:`M${E} ${a}C${E+r} ${a} ${E+r} ${z} ${E} ${z}`,
    'stroke-width':thick(B.bytes).toFixed(1),stroke:'var(--'+(B.kind==='temporary'?'temporary':'result')+')'});
   e.dataset.a=w;e.dataset.b=i;edges.append(e)});
  s.writes.forEach(b=>writer.set(b,i))});
 p.apart.forEach(n=>{
  const r=10+(LEFT-24)*Math.log(1+n.later-n.earlier)/Math.log(2+S.length),a=y(n.earlier),z=y(n.later);
  const e=node('path',{class:'no',d:`M${LEFT-6} ${a}C${LEFT-6-r} ${a} ${LEFT-6-r} ${z} ${LEFT-6} ${z}`,'stroke-width':1.5});
  e.dataset.a=n.earlier;e.dataset.b=n.later;edges.append(e)});
 S.forEach((s,i)=>{
  const g=node('g',{class:'row'}),c='var(--'+kind(s)+')',h=H-5;g.dataset.i=i;
  g.append(node('rect',{class:'hit',x:0,y:T+i*H,width:W,height:H}));
  g.append(node('rect',{x:LEFT,y:T+i*H+2,width:BOX-12,height:H-4,rx:4,fill:c,opacity:.16}));
  g.append(node('rect',{x:LEFT,y:T+i*H+2,width:4,height:H-4,rx:2,fill:c}));
  const name=s.text.split('(')[0],ops=s.operators.join(', ');
  let text=i+'  '+(ops&&ops!==name?name+': '+ops:name);const room=60;
  const n=s.calls.length>1?'  ×'+s.calls.length:'';
  if(text.length+n.length>room)text=text.slice(0,room-n.length-1)+'…';
  g.append(node('text',{x:LEFT+10,y:y(i)+4},text+n));
  const bar=b=>Math.max(1,(BARS-80)*b/most).toFixed(1);
  g.append(node('rect',{x:X,y:y(i)-h/4,width:bar(moved(s)),height:h/2,fill:c}));
  if(s.bytes_before>moved(s))g.append(node('rect',{x:X,y:y(i)-h/4,width:bar(s.bytes_before),height:h/2,fill:'none',stroke:c,opacity:.6}));
  g.append(node('text',{x:X+6+ +bar(Math.max(moved(s),s.bytes_before)),y:y(i)+4,class:'s'},bytes(moved(s))));
  rows.append(g)});
 drawMemory();
 const reasons=new Map();
 p.apart.forEach(a=>{const r=reasons.get(a.reason)||{n:0,b:0,most:a};r.n++;r.b+=a.bytes;if(a.bytes>r.most.bytes)r.most=a;reasons.set(a.reason,r)});
 const label=i=>i+' ('+(S[i].operators.slice(0,3).join(', ')||S[i].text.split('(')[0])+(S[i].operators.length>3?', …':'')+')';
 table('apart','What stayed apart, and why',['why','#pairs','#bytes between them','the largest'],
  [...reasons].sort((a,b)=>b[1].b-a[1].b).map(([why,r])=>[why,r.n,bytes(r.b),label(r.most.earlier)+' → '+label(r.most.later)]),
  'No step uses memory of another one.');
 table('kernels','Kernels compiled for this plan',['kernel','step','#seconds'],
  p.kernels.slice().sort((a,b)=>b.seconds-a.seconds).map(k=>[k.name,label(k.step),k.seconds.toFixed(3)]),
  'None by this process: on a CPU nothing is compiled, and kernels of before come from memory or disk.')}
function drawMemory(){
 const svg=$('memory');svg.replaceChildren();if(!plan||!plan.steps.length)return;
 const S=plan.steps,W=1200,H=260,L=78,R=12,T=10,B=30,n=S.length;
 const top=Math.max(1,...S.map(s=>s.live_results+s.live_temporaries))*1.06;
 const x=i=>L+i/n*(W-L-R),y=v=>H-B-v/top*(H-T-B);
 let tick=top/5,q=Math.pow(10,Math.floor(Math.log10(tick)));tick=(tick/q<=1?1:tick/q<=2?2:tick/q<=5?5:10)*q;
 for(let v=0;v<=top;v+=tick)svg.append(node('line',{class:'g',x1:L,x2:W-R,y1:y(v),y2:y(v)}),
  node('text',{x:L-8,y:y(v)+4,'text-anchor':'end',class:'s'},bytes(v)));
 const area=(low,high,c)=>{let f='',b='';S.forEach((s,i)=>{
  f+=(i?'L':'M')+x(i).toFixed(1)+' '+y(high(s)).toFixed(1)+'L'+x(i+1).toFixed(1)+' '+y(high(s)).toFixed(1);
  b='L'+x(i+1).toFixed(1)+' '+y(low(s)).toFixed(1)+'L'+x(i).toFixed(1)+' '+y(low(s)).toFixed(1)+b});
  svg.append(node('path',{d:f+b+'Z',fill:'var(--'+c+')',opacity:.75}))};
 area(()=>0,s=>s.live_results,'result');area(s=>s.live_results,s=>s.live_results+s.live_temporaries,'temporary');
 const peak=S.reduce((b,s,i)=>s.live_results+s.live_temporaries>S[b].live_results+S[b].live_temporaries?i:b,0);
 const every=Math.max(1,Math.ceil(n/12));
 for(let i=0;i<n;i+=every)svg.append(node('text',{x:x(i+.5),y:H-10,'text-anchor':'middle',class:'s'},i));
 svg.append(node('line',{id:'mark',class:'a',y1:T,y2:H-B,x1:-9,x2:-9,'stroke-width':2}));
 $('memlegend').replaceChildren(...[['temporary','temporaries'],['result','results'],['', 'at most '+
  bytes(S[peak].live_results+S[peak].live_temporaries)+' after step '+peak+'; beside it '+bytes(plan.given)+
  ' that were there before (inputs, parameters, state)']].map(([c,t])=>{
  const e=html('span');if(c){const i=html('i');i.style.background='var(--'+c+')';e.append(i)}e.append(t);return e}))}
function tell(i,e){
 const s=plan.steps[i],t=$('tip'),line=(text,cls)=>t.append(html('div',text,cls));
 t.replaceChildren();line('step '+i+' · '+s.text.split('(')[0]+(s.calls.length>1?' of '+s.calls.length+' calls':''),'h');
 line(s.operators.join(', '));line(s.text,'s');if(s.where)line(s.where,'s');
 line('reads '+bytes(s.bytes_read)+', writes '+bytes(s.bytes_written)+' (its calls moved '+bytes(s.bytes_before)+')');
 const list=(l,w)=>{if(l.length)line(w+' '+l.slice(0,6).map(b=>plan.buffers[b].text+' '+plan.buffers[b].kind).join('; ')+
  (l.length>6?'; and '+(l.length-6)+' more':''),'s')};
 list(s.reads,'reads');list(s.writes,'writes');
 line('then needed: '+bytes(s.live_temporaries)+' of temporaries, '+bytes(s.live_results)+' of results');
 plan.apart.filter(a=>a.later===i||a.earlier===i).slice(0,4).forEach(a=>
  line('not joined with step '+(a.later===i?a.earlier:a.later)+': '+a.reason,'r'));
 const w=t.offsetWidth,h=t.offsetHeight;
 t.style.left=Math.max(4,Math.min(e.clientX+16,innerWidth-w-8))+'px';
 t.style.top=Math.max(4,e.clientY+18+h>innerHeight?e.clientY-h-12:e.clientY+18)+'px';t.style.visibility='visible'}
function light(i){
 const svg=$('plan');svg.classList.toggle('dim',i>=0);
 svg.querySelectorAll('path').forEach(e=>e.classList.toggle('on',+e.dataset.a===i||+e.dataset.b===i));
 svg.querySelectorAll('.row').forEach(e=>e.classList.toggle('on',+e.dataset.i===i));
 const mark=$('mark');if(mark){const n=plan.steps.length,at=i<0?-9:78+(i+.5)/n*(1200-90);mark.setAttribute('x1',at);mark.setAttribute('x2',at)}}
let lit=-1;
const leave=()=>{lit=-1;$('tip').style.visibility='hidden';if(plan)light(-1)};
$('plan').addEventListener('pointermove',e=>{
 const row=e.target.closest('.row');if(!row)return;
 if(+row.dataset.i!==lit)light(lit=+row.dataset.i);tell(lit,e)});
$('plan').addEventListener('pointerleave',leave);
$('memory').addEventListener('pointermove',e=>{
 if(!plan||!plan.steps.length)return;
 const r=$('memory').getBoundingClientRect(),f=((e.clientX-r.left)*1200/r.width-78)/(1200-90);
 const i=Math.min(plan.steps.length-1,Math.max(0,Math.floor(f*plan.steps.length)));
 if(i!==lit)light(lit=i);tell(i,e)});
$('memory').addEventListener('pointerleave',leave);
if(!F.length)$('sub').textContent='No function was compiled.';
draw();
</script></body></html>
)html";

}  // namespace

std::string to_html(std::span<const Explanation> functions) {
  std::string page(kPageHead);
  // In a script element, "</" would end it wherever it stands.
  for (const char c : to_json(functions)) {
    if (c == '<')
      page += "\\u003c";
    else
      page += c;
  }
  page += kPageTail;
  return page;
}

}  // namespace arete::compile
