#include "arete/profile/memory_page_internal.h"

namespace arete::memory {

const std::string_view kMemoryPageHead = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Memory history</title>
<style>
:root{--page:#f6f7f9;--card:#fff;--text:#1c2330;--soft:#5b6575;--line:#dfe3ea;--grid:#e9ecf1}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f28;--text:#e6e9ef;--soft:#98a2b3;
--line:#2c3340;--grid:#272d38}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);line-height:1.45;
font:15px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1280px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:24px;margin:0 0 2px}h2{font-size:16px;margin:0 0 8px}
.sub{color:var(--soft);margin:0 0 16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin-bottom:16px}
.bar{display:flex;flex-wrap:wrap;gap:8px 18px;margin-bottom:10px;align-items:center}
.bar label{color:var(--soft);font-size:13px}
select{font:inherit;font-size:14px;background:var(--card);color:var(--text);border:1px solid var(--line);
border-radius:6px;padding:3px 8px;margin-left:6px}
svg{display:block;width:100%;height:auto;cursor:crosshair}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.g{stroke:var(--grid)}.mark{stroke:var(--text);stroke-dasharray:4 3}
.legend{display:flex;flex-wrap:wrap;gap:3px 16px;font-size:13px;margin-top:8px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.legend span{color:var(--soft)}
table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:14px;font-variant-numeric:tabular-nums}
th:nth-child(1){width:92px}th:nth-child(2){width:14%}th:nth-child(3){width:18%}
th:nth-child(5),th:nth-child(6){width:104px}
th{color:var(--soft);font-weight:500;text-align:left;padding:4px 12px 4px 0;font-size:13px}
td{padding:4px 12px 4px 0;border-top:1px solid var(--grid);vertical-align:top;overflow-wrap:anywhere}
td.n,th.n{text-align:right;white-space:nowrap}
pre{margin:4px 0 0;font-size:12px;white-space:pre-wrap;color:var(--soft)}
summary{cursor:pointer}
</style></head><body><main>
<h1>Memory history</h1><p class="sub" id="sub"></p>
<section class="card"><div class="bar" id="bar"></div>
<svg id="chart" viewBox="0 0 1200 420" role="img" aria-label="memory over time"></svg>
<div class="legend" id="legend"></div></section>
<section class="card"><h2 id="when"></h2><table id="live"></table></section>
</main><script>
const D=)html";

// Rows are [begin, end or -1, bytes, device, operator, scope, place, stack, number of the event at
// its begin, at its end]; times in microseconds.
const std::string_view kMemoryPageTail = R"html(;
'use strict';
const W=1200,H=420,L=78,R=12,T=10,B=34,COLUMNS=560,TOP=9;
const COLOURS=['#2563eb','#d9480f','#0f8a6d','#9333b8','#b7791f','#0e7fa8','#be2a5b','#5f7d2a','#7a5c45','#8b95a5'];
const PLAIN=D.scope==='scope';
const GROUPS=PLAIN?[['operator',4,'operators'],['outer scope',10,'outers'],['scope',5,'scopes'],['place in the program',6,'places']]:
 [['operator',4,'operators'],[D.scope,5,'scopes']];
// The first two names of a scope.
D.outers=[];
{const known=new Map();D.rows.forEach(r=>{
 const n=D.scopes[r[5]].split('/').slice(0,2).join('/');
 if(!known.has(n)){known.set(n,D.outers.length);D.outers.push(n)}
 r.push(known.get(n))})}
const $=id=>document.getElementById(id);
const bytes=n=>{const u=['B','KiB','MiB','GiB','TiB'];let i=0;n=+n;while(Math.abs(n)>=1024&&i<4){n/=1024;i++}
 return (i?n.toFixed(n<10?2:n<100?1:0):n)+' '+u[i]};
const time=us=>us<1e3?us.toFixed(0)+' µs':us<1e6?(us/1e3).toPrecision(4)+' ms':(us/1e6).toPrecision(4)+' s';
const node=(name,attributes,text)=>{const e=document.createElementNS('http://www.w3.org/2000/svg',name);
 for(const k in attributes)e.setAttribute(k,attributes[k]);if(text!==undefined)e.textContent=text;return e};
const html=(name,text,cls)=>{const e=document.createElement(name);if(text!==undefined)e.textContent=text;
 if(cls)e.className=cls;return e};
function choice(label,names){
 const l=html('label',label),s=html('select');
 names.forEach((n,i)=>{const o=html('option',n);o.value=i;s.append(o)});
 l.append(s);$('bar').append(l);s.addEventListener('change',draw);return s}
const device=choice('device',D.devices.length?D.devices:['none']);
const group=choice('by',GROUPS.map(g=>g[0]));
const scale=choice('along',['time','events']);
// With scopes in it, the page opens on them: on all of them where they can be told apart.
if(D.scopes.some(s=>s!==''))group.value=!PLAIN||D.scopes.length>TOP?1:2;
let state=null;
function build(){
 const rows=D.rows.filter(r=>r[3]===+device.value),column=GROUPS[group.value][1],names=D[GROUPS[group.value][2]];
 const steps=[];
 rows.forEach(r=>{steps.push([r[0],r[2],r,r[8]]);if(r[1]>=0)steps.push([r[1],-r[2],r,r[9]])});
 steps.sort((a,b)=>a[3]-b[3]);
 const most=new Map(),now=new Map();let total=0,peak=0,at=0;
 steps.forEach((s,i)=>{
  const k=s[2][column];total+=s[1];now.set(k,(now.get(k)||0)+s[1]);
  most.set(k,Math.max(most.get(k)||0,now.get(k)));if(total>peak){peak=total;at=i}});
 const order=[...most].sort((a,b)=>b[1]-a[1]).map(e=>e[0]),rank=new Map();
 order.forEach((k,i)=>rank.set(k,Math.min(i,TOP)));
 const layers=Math.min(order.length,TOP+1);
 const labels=order.slice(0,TOP).map(k=>names[k]===''?'(none)':names[k]);
 if(order.length>TOP)labels.push((order.length-TOP)+' others');
 const count=Math.max(steps.length,1),span=Math.max(D.last,1);
 const position=i=>scale.value==='1'?i/count:(i<steps.length?steps[i][0]:D.last)/span;
 // Of each column of pixels, the moment when the most was held.
 const columns=[];let sums=new Array(layers).fill(0),sum=0,i=0;
 for(let c=0;c<COLUMNS;c++){
  let best=sums.slice(),bestSum=sum,bestAt=i-1;
  while(i<steps.length&&position(i)<(c+1)/COLUMNS){
   const s=steps[i];sums[rank.get(s[2][column])]+=s[1];sum+=s[1];
   if(sum>=bestSum){best=sums.slice();bestSum=sum;bestAt=i}
   i++}
  columns.push({layers:best,sum:bestSum,step:bestAt})}
 return {rows,steps,columns,labels,layers,peak,at,position}}
function draw(){
 state=build();const s=state,svg=$('chart');svg.replaceChildren();
 const top=Math.max(s.peak,1)*1.04,x=f=>L+f*(W-L-R),y=v=>H-B-v/top*(H-T-B);
 let unit=Math.pow(1024,Math.floor(Math.log(top)/Math.log(1024))),tick=top/unit/5,p=Math.pow(10,Math.floor(Math.log10(tick)));
 tick=(tick/p<=1?1:tick/p<=2?2:tick/p<=5?5:10)*p;tick*=unit;
 for(let v=0;v<=top;v+=tick){
  svg.append(node('line',{class:'g',x1:L,x2:W-R,y1:y(v),y2:y(v)}));
  svg.append(node('text',{x:L-8,y:y(v)+4,'text-anchor':'end'},bytes(v)))}
 const below=new Array(COLUMNS).fill(0),step=1/COLUMNS;
 for(let k=0;k<s.layers;k++){
  let forward='',back='';
  for(let c=0;c<COLUMNS;c++){
   const low=below[c],high=low+s.columns[c].layers[k];below[c]=high;
   const x0=x(c*step).toFixed(1),x1=x((c+1)*step).toFixed(1);
   forward+=(c?'L':'M')+x0+' '+y(high).toFixed(1)+'L'+x1+' '+y(high).toFixed(1);
   back='L'+x1+' '+y(low).toFixed(1)+'L'+x0+' '+y(low).toFixed(1)+back}
  svg.append(node('path',{d:forward+back+'Z',fill:COLOURS[k]}))}
 for(let i=0;i<=6;i++){
  const text=scale.value==='1'?String(Math.round(i/6*s.steps.length)):time(i/6*D.last);
  svg.append(node('text',{x:x(i/6),y:H-10,'text-anchor':i===0?'start':i===6?'end':'middle'},text))}
 svg.append(node('line',{class:'mark',id:'mark',y1:T,y2:H-B,x1:-9,x2:-9}));
 $('sub').textContent=s.rows.length+' allocations in '+time(D.last)+', at most '+bytes(s.peak)+' at once'+
  (D.dropped?'; '+D.dropped+' older events were dropped':'')+'. Click for what was live at a moment.';
 const frames=s.steps.length?s.position(s.at):0;show(s.at,frames)}
function show(index,fraction){
 const s=state,live=new Set();
 for(let i=0;i<=index&&i<s.steps.length;i++)s.steps[i][1]>0?live.add(s.steps[i][2]):live.delete(s.steps[i][2]);
 const mark=$('mark'),at=L+fraction*(W-L-R);mark.setAttribute('x1',at);mark.setAttribute('x2',at);
 let total=0;live.forEach(r=>total+=r[2]);
 const t=index>=0&&index<s.steps.length?s.steps[index][0]:0;
 $('when').textContent=bytes(total)+' in '+live.size+' allocations live after '+time(t)+(index===s.at?' (the peak)':'');
 const by=new Map(),column=GROUPS[group.value][1],names=D[GROUPS[group.value][2]];
 live.forEach(r=>{const n=names[r[column]]===''?'(none)':names[r[column]];by.set(n,(by.get(n)||0)+r[2])});
 $('legend').replaceChildren(...s.labels.map((n,k)=>{
  const e=html('div'),i=html('i');i.style.background=COLOURS[k];
  let v=by.get(n)||0;
  if(k===TOP){v=total;s.labels.slice(0,TOP).forEach(l=>v-=by.get(l)||0)}
  e.append(i,n+' ',html('span',bytes(v)));return e}));
 const table=$('live');table.replaceChildren();
 const head=html('tr');['bytes','operator',D.scope,PLAIN?'place in the program':'','since','until'].forEach((n,i)=>
  head.append(html('th',n,i===0||i>3?'n':'')));table.append(head);
 [...live].sort((a,b)=>b[2]-a[2]).slice(0,60).forEach(r=>{
  const tr=html('tr');
  tr.append(html('td',bytes(r[2]),'n'),html('td',D.operators[r[4]]),html('td',D.scopes[r[5]]));
  const where=html('td');
  if(D.stacks[r[7]]){const d=html('details');d.append(html('summary',D.places[r[6]]||'stack'),html('pre',D.stacks[r[7]]));where.append(d)}
  tr.append(where,html('td',time(r[0]),'n'),html('td',r[1]<0?'the end':time(r[1]),'n'));table.append(tr)});
 if(live.size>60){const tr=html('tr'),td=html('td','and '+(live.size-60)+' smaller ones');td.colSpan=6;tr.append(td);table.append(tr)}}
$('chart').addEventListener('click',e=>{
 const r=$('chart').getBoundingClientRect(),f=((e.clientX-r.left)*W/r.width-L)/(W-L-R);
 const c=Math.min(COLUMNS-1,Math.max(0,Math.floor(f*COLUMNS)));
 show(state.columns[c].step,(c+.5)/COLUMNS)});
draw();
</script></body></html>
)html";

}  // namespace arete::memory
